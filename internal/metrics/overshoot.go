package metrics

import (
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

// countOver counts an attempt past a limit. Its episode lasts until the limit is
// whole again, and a window at most: who never stops is counted window by window.
func (m *Metrics) countOver(s *policySeries, key limiter.Key, over *limiter.LimitDecision) {
	lasts := over.Limit.Window
	if over.ResetAfter > 0 {
		lasts = min(lasts, over.ResetAfter)
	}
	now := m.now()
	switch m.overshoot.Count(overshoot.Attempt{Policy: s.name, Key: key, At: now, Ends: now.Add(lasts)}) {
	case overshoot.Further:
		s.repeated.Inc()
	case overshoot.Dropped:
		m.decisions.dropped.Inc()
	case overshoot.First:
	}
}

// episodeEnded publishes an episode, unless its policy is gone.
func (m *Metrics) episodeEnded(e overshoot.Episode) {
	if s := (*m.policies.Load())[e.Policy]; s != nil {
		s.attempts.Observe(float64(e.Attempts))
	}
}
