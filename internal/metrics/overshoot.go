package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// overshootVecs tell by how much callers go past their limits.
type overshootVecs struct {
	attempts *prometheus.HistogramVec // policy
	repeated *prometheus.CounterVec   // policy
	dropped  prometheus.Counter
}

// newOvershootVecs has buckets from one attempt, somebody who stopped when told,
// over a few, a person who tries again, to thousands, a machine that never looks.
func newOvershootVecs() overshootVecs {
	return overshootVecs{
		attempts: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "ratelimitd_overshoot_attempts",
			Help:    "Attempts of a key beyond its limit, from the first until the window ends.",
			Buckets: []float64{1, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000},
		}, []string{"policy"}),
		repeated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ratelimitd_overshoot_repeated_total",
			Help: "Attempts of a key beyond its limit that were not the first in their window.",
		}, []string{"policy"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_overshoot_dropped_total",
			Help: "Attempts beyond a limit that are in no histogram, because too many keys were over their limits.",
		}),
	}
}

// overLimit returns the limit that the attempt went past; nil when it did not, was
// none, as a check is, or was not counted by the store.
func overLimit(op limiter.Op, outcome outcome, d *limiter.Decision) *limiter.LimitDecision {
	switch {
	case op == limiter.OpTake && (outcome == outcomeDenied || outcome == outcomeBlocked || outcome == outcomeWouldDeny):
		return &d.Limits[d.Tightest]
	case op == limiter.OpRecord && outcome == outcomeAllowed:
		for i := range d.Limits {
			if d.Limits[i].Used > d.Limits[i].Limit.Limit {
				return &d.Limits[i]
			}
		}
	}
	return nil
}

// countOver counts an attempt past a limit.
func (m *Metrics) countOver(s *policySeries, key limiter.Key, d *limiter.Decision, over *limiter.LimitDecision) {
	now := m.now()
	ends := now.Add(episodeLasts(over, d.Blocked))
	switch m.overshoot.Count(overshoot.Attempt{Policy: s.name, Key: key, At: now, Ends: ends}) {
	case overshoot.Further:
		s.repeated.Inc()
	case overshoot.Dropped:
		m.decisions.dropped.Inc()
	case overshoot.First:
	}
}

// episodeLasts returns how long an episode lasts that begins at the limit over: until
// the limit is whole again, and a window at most, so that who never stops is counted
// window by window. A window of the calendar may be longer than its name says: a day
// on which clocks are turned back has 25 hours.
func episodeLasts(over *limiter.LimitDecision, blocked bool) time.Duration {
	switch {
	case over.ResetAfter <= 0:
		return over.Limit.Window
	case over.Limit.Calendar != "" && !blocked: // a block's end is no window's
		return over.ResetAfter
	}
	return min(over.Limit.Window, over.ResetAfter)
}

// episodeEnded publishes an episode, unless its policy is gone.
func (m *Metrics) episodeEnded(e overshoot.Episode) {
	if s := (*m.policies.Load())[e.Policy]; s != nil {
		s.attempts.Observe(float64(e.Attempts))
	}
}
