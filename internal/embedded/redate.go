package embedded

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// longestReset is longer than any reset is kept, which is two of the longest windows, and margins.
const longestReset = 3 * policy.MaxWindow

// redate sets every date in e that is later than now to now, because the clock was set back.
func (e *entry) redate(now store.Instant) {
	e.bound(now)
	for span := range store.SpanCount {
		if l := e.logOf(span); l != nil {
			for i := l.after(now); i < len(l.events); i++ {
				l.events[i].Redate(now)
			}
		}
	}
	e.reset = min(e.reset, now-1)
	for i := range e.counts {
		e.counts[i].Epoch = min(e.counts[i].Epoch, now-1)
	}
}

// dropZeros drops counters that are zero.
func (e *entry) dropZeros() {
	e.counts = slices.DeleteFunc(e.counts, func(have store.Count) bool { return have.Units == 0 })
}

// bound shortens the life of e as if each of its dates that is later than now were now. So keys that were dated by a clock
// that was ahead don't fill the memory for longer than others.
func (e *entry) bound(now store.Instant) {
	until, isAhead := store.Instant(0), e.reset > now
	for span := range store.SpanCount {
		if l := e.logOf(span); l != nil && len(l.events) > 0 {
			last := l.events[len(l.events)-1].At
			until, isAhead = max(until, min(last, now).Add(l.ttl.duration())), isAhead || last > now
		}
	}
	for i := range e.counts {
		c, early := &e.counts[i], store.Instant(0)
		if now < c.Start && c.Start < c.Expires {
			early, isAhead = c.Start-now, true
		}
		until = max(until, c.Expires-early)
	}
	if !isAhead {
		return
	}
	if e.rare != nil {
		for i := range e.rare.tallies {
			until = max(until, e.rare.tallies[i].Expires)
		}
	}
	if e.reset > 0 {
		until = max(until, min(e.reset, now).Add(longestReset))
	}
	e.expires = min(e.expires, until)
}

// bound shortens the life of a cell that was written by a clock that was ahead: it ends after the time to live from now on. c
// may be nil.
func (c *cell) bound(now store.Instant) {
	if c == nil || c.expires >= store.Distant {
		return
	}
	if early := c.Version.Instant() - now; early > 0 {
		c.expires -= early
	}
}

// outlast extends the life of a cell from a disk to at least loadedLast. c may be nil.
func (c *cell) outlast(now store.Instant) {
	if c != nil && c.expires != 0 {
		c.expires = max(c.expires, now.Add(loadedLast))
	}
}
