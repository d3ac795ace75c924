package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// GiveBack takes what e counted out of s's counters and buckets, as far as they are
// in a cell. If it is confirmed, conversions are told so instead.
func (p *Plan) GiveBack(s *store.State, e *Entry, now store.Instant) {
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case e.Confirmed && r.Kind == policy.Conversion:
			if !e.Repeats {
				r.confirm(s, now, e.At, e.Cost)
			}
		case !p.GivesBack(e):
		case r.Kind.Memory == policy.MemoryCells:
			r.algorithm.scoop(r, s, now, e.poured(now, s.Reset), e.Cost)
		case r.Kind.Memory == policy.MemoryCounters && p.Serial && e.Epoch == s.Reset:
			s.Add(r.CountOf(e.Epoch, e.At, -e.Cost))
		}
	}
}

// GivesBack reports whether what e counted under p's limits is given back: whatever is refunded,
// and of what is confirmed that of limits that count until then. Either all do but conversions, or
// none does.
func (p *Plan) GivesBack(e *Entry) bool {
	return !e.Confirmed || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Until == policy.UntilConfirmed })
}

// Confirms reports whether anything under p's limits goes by what is confirmed.
func (p *Plan) Confirms() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Until == policy.UntilConfirmed || r.Kind == policy.Conversion })
}

// ConversionWindow returns the longest window of p's conversions; 0: it has none.
func (p *Plan) ConversionWindow() (longest time.Duration) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Kind == policy.Conversion {
			longest = max(longest, r.Window)
		}
	}
	return longest
}

// ConfirmableFor returns how long after something was counted it matters whether it is confirmed: for a
// window, where a conversion goes by it, and else as long as it can be refunded.
func (p *Plan) ConfirmableFor() (longest time.Duration) {
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case r.Kind == policy.Conversion:
			longest = max(longest, r.Window)
		case r.Until == policy.UntilConfirmed:
			longest = max(longest, 2*r.Longest())
		}
	}
	return longest
}

// AppendCounts appends to counts what p's rules add for units at now.
func (p *Plan) AppendCounts(counts []store.Count, epoch, now store.Instant, units int64) []store.Count {
	for i := range p.Rules {
		if p.Rules[i].Kind.Memory == policy.MemoryCounters {
			counts = append(counts, p.Rules[i].CountOf(epoch, now, units))
		}
	}
	return counts
}

// CountOf returns units as they are added to now's counter under epoch.
func (r *Rule) CountOf(epoch, now store.Instant, units int64) store.Count {
	start, end := r.WindowAt(now)
	return store.Count{Limit: r.ID, Start: start, Expires: end.Add(r.lasts - r.Width), Epoch: epoch, Units: units}
}

// RuleOf returns p's rule with this id, nil if it has none.
func (p *Plan) RuleOf(id policy.LimitID) *Rule {
	for i := range p.Rules {
		if p.Rules[i].ID == id {
			return &p.Rules[i]
		}
	}
	return nil
}

// LimitID returns the ID that is written as text: that of one of p's own limits needs no
// memory.
func (p *Plan) LimitID(text []byte) policy.LimitID {
	for i := range p.Rules {
		if id := p.Rules[i].ID; string(text) == string(id) {
			return id
		}
	}
	return policy.LimitID(text)
}

// EndsItself reports whether holds under p free themselves: all of it is logs.
func (p *Plan) EndsItself() bool {
	for i := range p.Rules {
		if p.Rules[i].Kind.Memory != policy.MemoryEvents {
			return false
		}
	}
	return true
}
