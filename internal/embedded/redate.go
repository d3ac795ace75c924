package embedded

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// longestReset is longer than any reset is remembered: two of the longest windows, and margins.
const longestReset = 3 * limiter.MaxWindow

// redate dates what is dated later than now as of now, because the clock was set back.
func (e *entry) redate(now limiter.Instant) {
	e.bound(now)
	for span := range limiter.SpanCount {
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

// dropZeros forgets counters that have come to nothing.
func (e *entry) dropZeros() {
	e.counts = slices.DeleteFunc(e.counts, func(have limiter.Count) bool { return have.Units == 0 })
}

// steps notices when the clock is set back.
type steps struct{ lead limiter.Instant }

// isBack reports whether the clock was set back, by more than a second, since it was last asked.
func (s *steps) isBack(clock *Store) bool {
	before := s.lead
	s.lead = clock.ahead()
	return s.lead < before-1000
}

// bound has e last no longer than it does if what is dated later than now is dated now: so keys
// that a clock dated which was ahead don't fill the memory for as long.
func (e *entry) bound(now limiter.Instant) {
	until, ahead := limiter.Instant(0), e.reset > now
	for span := range limiter.SpanCount {
		if l := e.logOf(span); l != nil && len(l.events) > 0 {
			last := l.events[len(l.events)-1].At
			until, ahead = max(until, min(last, now).Add(l.ttl.duration())), ahead || last > now
		}
	}
	for i := range e.counts {
		c, early := &e.counts[i], limiter.Instant(0)
		if now < c.Start && c.Start < c.Expires {
			early, ahead = c.Start-now, true
		}
		until = max(until, c.Expires-early)
	}
	if !ahead {
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

// bound has a cell that was written by a clock which was ahead last no longer than it was given. A
// nil cell is none.
func (c *cell) bound(now limiter.Instant) {
	if c == nil || c.expires >= limiter.Distant {
		return
	}
	if early := c.Version.Instant() - now; early > 0 {
		c.expires -= early
	}
}

// outlast has a cell that a disk held last for loadedLast at least.
func (c *cell) outlast(now limiter.Instant) {
	if c != nil && c.expires != 0 {
		c.expires = max(c.expires, now.Add(loadedLast))
	}
}
