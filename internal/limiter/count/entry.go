package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Entry is what was counted for a target: what it takes beside that to give it back.
type Entry struct {
	ID    store.EventID
	At    store.Instant
	Epoch store.Instant // the reset that it was counted under
	Cost  int64
	Held  time.Duration // for how long it was, of a reservation that is over; else 0

	Confirmed bool          // it stays where it counts: only limits until: confirmed give it back, and conversions are told
	Claimed   store.Instant // when its receipt first came back; 0: it is not given back by a receipt
	Again     bool          // it came back before: only what can't be done twice is to be done
}

// poured returns when e's units were poured into a bucket. If that was by a clock that was set back
// since, it is known of what was held, unless a reset may have come between.
func (e *Entry) poured(now, reset store.Instant) store.Instant {
	if e.At > now && e.Held > 0 && e.Epoch == reset {
		return now.Add(-e.Held)
	}
	return e.At
}

// Stands reports whether d, under its policy's mode, lets the call that it is a part
// of pass.
func (d *Decision) Stands() bool { return d.WouldAllow || d.Policy.Mode != policy.ModeEnforce }
