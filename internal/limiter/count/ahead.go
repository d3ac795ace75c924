package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// RedateCells gives everything in the cells that has a later time than now the time now.
func (p *RuleSet) RedateCells(s *store.State, now store.Instant) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.algorithm.redate != nil {
			r.algorithm.redate(r, s, now)
		}
	}
}

// CellLasts returns how long after now the cells in s can affect a decision.
func (p *RuleSet) CellLasts(s *store.State, now store.Instant) (longest time.Duration) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Kind.Memory == policy.MemoryCells {
			longest = max(longest, r.algorithm.wait(r, s, now, r.Capacity))
		}
	}
	return longest
}

// RedateCounts moves units of later windows into now's window. It returns the changes to the counters: the units that
// each of them loses or gains.
func (p *RuleSet) RedateCounts(s *store.State, now store.Instant) (moved []store.Count) {
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
