package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// overshootVecs are the metrics of how far callers go past their limits.
type overshootVecs struct {
	attempts *prometheus.HistogramVec // policy
	times    *prometheus.HistogramVec // policy
	units    *prometheus.CounterVec   // policy
	repeated *prometheus.CounterVec   // policy
	dropped  prometheus.Counter
}

// newOvershootVecs has buckets from one attempt, for a caller that stops when denied, over a few, for a person
// that tries again, to thousands, for a machine that ignores denials.
func newOvershootVecs(auto factory) overshootVecs {
	return overshootVecs{
		attempts: auto.histograms("ratelimitd_overshoot_attempts",
			"Attempts of a key beyond its limit, from the first one until the window ends.",
			[]float64{1, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000}, "policy"),
		times: auto.histograms("ratelimitd_overshoot_times_limit",
			"Multiple of its limit that a key asked for, from its first attempt beyond it to the window's end.",
			[]float64{1.1, 1.5, 2, 3, 5, 10, 20, 50, 100, 1000}, "policy"),
		units: auto.counters("ratelimitd_overshoot_units_total", "Units beyond the limit that attempts asked for.", "policy"),
		repeated: auto.counters("ratelimitd_overshoot_repeated_total",
			"Attempts of a key beyond its limit, without the first one in each window.", "policy"),
		dropped: auto.counter("ratelimitd_overshoot_dropped_total",
			"Attempts beyond a limit that are in no histogram, because too many keys were over their limits."),
	}
}

// overshootSeries are the series of a policy, and its tally.
type overshootSeries struct {
	tally    *overshoot.Tally
	attempts prometheus.Observer
	times    prometheus.Observer
	units    prometheus.Counter
	repeated prometheus.Counter
}

// of returns the series of policy, which continue tally, or a new one if it is nil.
func (v *overshootVecs) of(policy string, tally *overshoot.Tally, now time.Time) overshootSeries {
	if tally == nil {
		tally = overshoot.NewTally(policy, now)
	}
	return overshootSeries{
		tally:    tally,
		attempts: v.attempts.WithLabelValues(policy),
		times:    v.times.WithLabelValues(policy),
		units:    v.units.WithLabelValues(policy),
		repeated: v.repeated.WithLabelValues(policy),
	}
}

// newOpenKeys returns a collector of the number of keys over their limit, by policy.
func newOpenKeys(m *Metrics) prometheus.Collector {
	s := new(scraped)
	open := s.figure("ratelimitd_overshoot_policy_keys", "Keys that are over their limit now, by policy.", "policy")
	s.collect = func(to chan<- prometheus.Metric) {
		for name, of := range *m.policies.Load() {
			to <- open.is(float64(of.tally.Open()), name)
		}
	}
	return s
}

// overLimit returns the limit that an attempt went past, nil if it did not, is a check, or was not counted by the
// store.
func overLimit(op count.Op, outcome count.Outcome, d *count.Decision) *count.LimitDecision {
	switch {
	case d.Reason != "": // no limit was read
		return nil
	case op == count.OpTake && !d.WouldAllow && !d.Degraded:
		return &d.Limits()[d.Tightest]
	case op == count.OpRecord && outcome == count.OutcomeAllowed:
		for i := range d.Limits() {
			if l := &d.Limits()[i]; l.Used > l.Limit.Limit && !l.Limit.Shadow {
				return l
			}
		}
	}
	return nil
}

// countOver counts an attempt past a limit.
func (m *Metrics) countOver(s *policySeries, key store.Key, cost int64, d *count.Decision, over *count.LimitDecision) {
	now := m.now()
	a := overshoot.Attempt{
		Tally: s.tally, Key: key, Units: unitsBeyond(cost, d, over), At: now,
		Limit: over.Limit.Limit, Ends: now.Add(episodeLasts(over, d.Blocked)),
	}
	s.units.Add(float64(a.Units))
	switch m.overshoot.Count(a) {
	case overshoot.Further:
		s.repeated.Inc()
	case overshoot.Dropped:
		m.decisions.dropped.Inc()
	case overshoot.First:
	}
}

// unitsBeyond returns the units of an attempt beyond the limit over: all if it was denied, those that did not fit if it
// was recorded.
func unitsBeyond(cost int64, d *count.Decision, over *count.LimitDecision) int64 {
	if !d.WouldAllow {
		return cost
	}
	return min(cost, over.Used-over.Limit.Limit)
}

// episodeLasts returns the duration of an episode that begins at the limit over: until the limit is unused, but at most
// a window, so that a caller that never stops is counted window by window. A day on which clocks are turned back has 25
// hours.
func episodeLasts(over *count.LimitDecision, blocked bool) time.Duration {
	switch {
	case over.ResetAfter <= 0:
		return over.Limit.Window
	case over.Limit.Calendar != "" && !blocked: // a block does not end with a window
		return over.ResetAfter
	}
	return min(over.Limit.Window, over.ResetAfter)
}

// episodeEnded publishes an episode, unless its policy is gone.
func (m *Metrics) episodeEnded(e overshoot.Episode) {
	s := (*m.policies.Load())[e.Policy]
	if s == nil {
		return
	}
	s.attempts.Observe(float64(e.Attempts))
	if e.Times > 0 {
		s.times.Observe(e.Times)
	}
}

// Overshoot reports how far callers have gone past the limits of policy, with the top worst keys. It returns false for
// a policy that SetPolicies did not get.
func (m *Metrics) Overshoot(policy string, top int) (overshoot.Report, bool) {
	s := (*m.policies.Load())[policy]
	if s == nil {
		return overshoot.Report{}, false
	}
	return m.overshoot.Report(s.tally, top, m.now()), true
}
