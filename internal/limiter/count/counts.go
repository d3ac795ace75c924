package count

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// GiveBack removes e's units from the cells of s. If e is a confirmation, conversions record it instead.
func (p *RuleSet) GiveBack(s *store.State, e *Entry, now store.Instant) {
	for i := range p.Rules {
		switch r := &p.Rules[i]; {
		case e.Confirmed && r.Kind == policy.Conversion:
			if !e.Repeats {
				r.confirm(s, now, e.At, e.Cost)
			}
		case !p.GivesBack(e):
		case r.Kind.Memory == policy.MemoryCells:
			r.algorithm.remove(r, s, now, e.addedAt(now, s.Reset), e.Cost, e.Kept)
		}
	}
}

// GivesBack reports whether e's units are removed from p's limits. Those of a refund always are, those of a confirmation
// only from limits with until: confirmed. Apart from conversions, either all limits of p give them back, or none does.
func (p *RuleSet) GivesBack(e *Entry) bool {
	return !e.Confirmed || slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Until == policy.UntilConfirmed })
}

// Confirms reports whether any of p's limits depends on confirmations.
func (p *RuleSet) Confirms() bool {
	return slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Until == policy.UntilConfirmed || r.Kind == policy.Conversion })
}

// ConversionWindow returns the longest window of p's conversions; 0: it has none.
func (p *RuleSet) ConversionWindow() (longest time.Duration) {
	for i := range p.Rules {
		if r := &p.Rules[i]; r.Kind == policy.Conversion {
			longest = max(longest, r.Window)
		}
	}
	return longest
}

// ConfirmableFor returns how long after a unit was counted a confirmation of it makes a difference: for a conversion a
// window, for other limits as long as the unit can be refunded.
func (p *RuleSet) ConfirmableFor() (longest time.Duration) {
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

// AppendCounts appends to counts the additions that p's rules make to their counters for units at now.
func (p *RuleSet) AppendCounts(counts []store.Count, epoch, now store.Instant, units int64) []store.Count {
	for i := range p.Rules {
		if p.Rules[i].Kind.Memory == policy.MemoryCounters {
			counts = append(counts, p.Rules[i].CountOf(epoch, now, units))
		}
	}
	return counts
}

// CountOf returns the addition of units to now's counter under epoch.
func (r *Rule) CountOf(epoch, now store.Instant, units int64) store.Count {
	start, end := r.WindowAt(now)
	return store.Count{Limit: r.ID, Start: start, Expires: end.Add(r.lasts - r.Width), Epoch: epoch, Units: units}
}

// RuleOf returns p's rule with this id, nil if it has none.
func (p *RuleSet) RuleOf(id policy.LimitID) *Rule {
	for i := range p.Rules {
		if p.Rules[i].ID == id {
			return &p.Rules[i]
		}
	}
	return nil
}

// LimitID returns text as an ID. It does not allocate for the ID of one of p's own limits.
func (p *RuleSet) LimitID(text []byte) policy.LimitID {
	for i := range p.Rules {
		if id := p.Rules[i].ID; string(text) == string(id) {
			return id
		}
	}
	return policy.LimitID(text)
}

// EndsItself reports whether holds under p end without a write, because all of p's limits count in logs.
func (p *RuleSet) EndsItself() bool {
	return !slices.ContainsFunc(p.Rules, func(r Rule) bool { return r.Kind.Memory != policy.MemoryEvents })
}
