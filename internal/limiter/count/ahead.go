package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// IsAhead reports whether anything that p counts in s, whose cell is open, is dated later than
// now.
func (p *Plan) IsAhead(s *store.State, now store.Instant) bool {
	if s.Reset > now {
		return true
	}
	for i := range s.Logs {
		if events := s.Logs[i].Events; len(events) > 0 && events[len(events)-1].At > now {
			return true
		}
	}
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start > now && c.Units != 0 && p.RuleOf(c.Limit) != nil {
			return true
		}
	}
	for i := range s.Levels {
		if b := &s.Levels[i]; b.At > now && p.RuleOf(b.Limit) != nil {
			return true
		}
	}
	for i := range s.Conversions {
		if c := &s.Conversions[i]; c.Last > now && p.RuleOf(c.Limit) != nil {
			return true
		}
	}
	return false
}

// RedateCells dates as of now what cells have that is dated later.
func (p *Plan) RedateCells(s *store.State, now store.Instant) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.algorithm.redate != nil {
			r.algorithm.redate(r, s, now)
		}
	}
}

// CellLasts returns how long what cells have in s matters from now on.
func (p *Plan) CellLasts(s *store.State, now store.Instant) (longest time.Duration) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Kind.Memory == policy.MemoryCells {
			longest = max(longest, r.algorithm.wait(r, s, now, r.Capacity))
		}
	}
	return longest
}

// RedateCounts moves what later windows than now's hold into now's, and returns what that adds to
// the counters and takes from them.
func (p *Plan) RedateCounts(s *store.State, now store.Instant) (moved []store.Count) {
	for i := range s.Counts {
		s.Counts[i].Epoch = min(s.Counts[i].Epoch, now-1)
		c := s.Counts[i]
		r := p.RuleOf(c.Limit)
		if c.Start <= now || c.Units == 0 || r == nil {
			continue
		}
		to := r.CountOf(c.Epoch, now, c.Units)
		c.Units = -c.Units
		moved = append(moved, c, to)
	}
	for _, c := range moved {
		s.Add(c)
	}
	return moved
}
