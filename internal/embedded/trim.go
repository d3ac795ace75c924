package embedded

import (
	"math"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	// spareEvents is how far a log may outgrow what matters before its oldest events
	// are merged, so that merging is rare.
	spareEvents = 16
	// holdMargin is how long an ended hold is kept for instances whose clock is behind: twice as far as two clocks are
	// ever allowed to be apart.
	holdMargin = 2 * time.Minute
)

// makeRoom makes room for two more events in a log that has none: an Update's decide appends to the
// events that it reads before the store does.
func (l *eventLog) makeRoom(keep int, at store.Instant, clock *Store) {
	if len(l.events) > 0 {
		l.trim(keep, at, clock)
	}
	l.grow(keep)
}

// grow makes room for one more event: for twice as many, but up to keep for hardly more than
// that, as there most logs stay. An eighth is added to keep, so that trimming stays rare.
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

// trim removes events that have expired at an instant, and ended holds, and merges all others but the
// newest keep if that is still too many.
func (l *eventLog) trim(keep int, at store.Instant, clock *Store) {
	now := min(at, clock.dated())
	l.drop(l.after(now.Add(-l.ttl.duration())))
	if l.holds {
		l.filter(func(have *store.Event) bool { return have.Ends == 0 || have.Ends > now.Add(-holdMargin) })
	}
	if len(l.events) >= 2*keep+spareEvents {
		l.merge(len(l.events) - keep)
		l.know()
	}
}

// drop removes the oldest n events, without a look at the others.
func (l *eventLog) drop(n int) {
	if l.sum != math.MaxInt64 {
		l.sum -= store.SumOf(l.events[:n])
		l.events = slices.Delete(l.events, 0, n)
		return
	}
	l.events = slices.Delete(l.events, 0, n)
	l.know()
}

// merge makes one event of the oldest n, which nobody can remove, dated as the
// youngest of them: that is exact for any use up to the limit. Holds become a hold of
// their own, until the last of them ends.
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
