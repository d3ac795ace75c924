package embedded

import (
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	// spareEvents is how far a log may exceed twice its useful length before its oldest events are merged, so that merging is
	// rare.
	spareEvents = 16
	// holdMargin is how long an ended hold is kept for instances whose clock is behind. It is twice the largest tolerance of
	// clocks.
	holdMargin = 2 * time.Minute
)

// makeRoom makes room for two more events in a full log. In an Update, decide appends one before the store does.
func (l *eventLog) makeRoom(keep int, at store.Instant, clock *Store) {
	if len(l.events) > 0 {
		l.trim(keep, at, clock)
	}
	l.grow(keep)
}

// grow makes room for one more event. It doubles the capacity, at first up to keep plus an eighth: most logs don't grow beyond
// keep, and the eighth makes trimming rare.
func (l *eventLog) grow(keep int) {
	n := len(l.events)
	if n < cap(l.events) {
		return
	}
	room := max(1, 2*n)
	if full := keep + max(1, keep/8); n < full {
		room = min(room, full)
	}
	l.events = append(make([]store.Event, 0, room), l.events...)
}

// trim removes events that have expired at the instant at, and ended holds. If the log is still too long, it merges all but the
// newest keep events.
func (l *eventLog) trim(keep int, at store.Instant, clock *Store) {
	now := min(at, clock.dated())
	l.drop(l.after(now.Add(-l.ttl.duration())))
	if l.holds {
		l.filter(func(have *store.Event) bool { return have.Ends == 0 || have.Ends > now.Add(-holdMargin) })
	}
	if len(l.events) >= 2*keep+spareEvents {
		l.merge(len(l.events) - keep)
		l.summarize()
	}
}

// drop removes the oldest n events. It reads the others only if the sum is math.MaxInt64, and so not exact.
func (l *eventLog) drop(n int) {
	if l.sum != math.MaxInt64 {
		l.sum -= store.SumOf(l.events[:n])
		l.events = slices.Delete(l.events, 0, n)
		return
	}
	l.events = slices.Delete(l.events, 0, n)
	l.summarize()
}

// merge merges the oldest n events into one, which can't be removed and has the date of the youngest of them. Decisions stay
// exact, because the newest events alone reach the limit. Holds are merged into one hold, which ends when the last of them
// does.
func (l *eventLog) merge(n int) {
	var whole, held store.Event
	for _, event := range l.events[:n] {
		into := &whole
		if event.Ends != 0 {
			into, held.Ends = &held, max(held.Ends, event.Ends)
		}
		into.At = event.At
		into.Cost = store.AddSaturating(into.Cost, event.Cost)
	}
	merged := []store.Event{whole, held}
	if held.At < whole.At {
		merged[0], merged[1] = held, whole
	}
	merged = slices.DeleteFunc(merged, func(e store.Event) bool { return e.Cost == 0 })
	l.events = slices.Replace(l.events, 0, n, merged...)
}
