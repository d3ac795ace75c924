package demand

import (
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
)

// An owner keeps the state of a key for a plan. Calls of the key may have other plans: from another version of the
// policies, or under an override. They use the same state if they count in the same places.

// Serves reports whether a state that was read for p, and is kept for p, has everything that other needs.
func (p *Plan) Serves(other *Plan) bool {
	if !p.sharesStateWith(other) {
		return false
	}
	for i := range p.Logs {
		if p.Logs[i].Limit < other.Logs[i].Limit || p.Logs[i].Window < other.Logs[i].Window {
			return false
		}
	}
	return true
}

// sharesStateWith reports whether p and other count in the same places. It returns false for cells, whose content depends on
// the numbers of the plan, and for units that are written behind under different windows, as all are written by one plan.
func (p *Plan) sharesStateWith(other *Plan) bool {
	return !p.Cell && !other.Cell && p.Sums == other.Sums && p.Counters == other.Counters && p.Tally == other.Tally &&
		p.Span == other.Span && p.Behind == other.Behind && p.Releases == other.Releases && p.Consistency == other.Consistency &&
		slices.EqualFunc(p.Logs, other.Logs, func(a, b count.LogRules) bool {
			return a.Span == b.Span && (!p.Behind || a.Window == b.Window)
		})
}

// Wide returns a plan that decides as p does, and reads and keeps as much as p and other need together. It returns p if they
// don't share a state.
func (p *Plan) Wide(other *Plan) *Plan {
	if !p.sharesStateWith(other) {
		return p
	}
	made := *p
	made.Base = &made
	made.Logs, made.LogWrites = slices.Clone(p.Logs), slices.Clone(p.LogWrites)
	for i := range made.Logs {
		log, others := &made.Logs[i], &other.Logs[i]
		log.Limit, log.Window, log.CountsFor = max(log.Limit, others.Limit), max(log.Window, others.Window), max(log.CountsFor, others.CountsFor)
		writes := &made.LogWrites[i]
		writes.TTL, writes.Keep = max(writes.TTL, other.LogWrites[i].TTL), max(writes.Keep, other.LogWrites[i].Keep)
	}
	made.ResetTTL, made.Life = max(p.ResetTTL, other.ResetTTL), max(p.Life, other.Life)
	return &made
}
