package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// BreakerState is what the breaker in front of the store does.
type BreakerState string

// The states of a breaker.
const (
	BreakerClosed BreakerState = "closed" // requests go to the store
	BreakerOpen   BreakerState = "open"   // one probe at a time does
)

var breakerStates = []BreakerState{BreakerClosed, BreakerOpen}

// gauges are set by those who know.
type gauges struct {
	clockOffset   prometheus.Gauge
	sweepProgress prometheus.Gauge
	sweepFinished prometheus.Gauge
	swept         prometheus.Counter
	breaker       *prometheus.GaugeVec // state
	caveats       *prometheus.GaugeVec // caveat, accepted
	policies      prometheus.Gauge
}

func newGauges() gauges {
	g := gauges{
		clockOffset: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_clock_offset_seconds",
			Help: "How far this instance's clock is ahead of the store's; below 0: behind.",
		}),
		sweepProgress: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_sweeper_progress_ratio",
			Help: "How much of the store the current sweep of expired counters has visited, 0 to 1.",
		}),
		sweepFinished: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "ratelimitd_sweeper_finished_timestamp_seconds",
			Help: "When this instance last finished a sweep; 0: never.",
		}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "ratelimitd_sweeper_swept_total",
			Help: "Keys of which the sweeper deleted expired counters.",
		}),
		breaker: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ratelimitd_breaker_state",
			Help: "1 for the state that the breaker in front of the store is in, 0 for the others.",
		}, []string{"state"}),
		caveats: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ratelimitd_cluster_caveat",
			Help: "1 if the cluster may forget or misjudge what it acknowledged for that reason, 0 if not: looked at daily. " +
				"accepted is true for those of --accept-caveats.",
		}, []string{"caveat", "accepted"}),
	}
	g.policies = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "ratelimitd_policies_version",
		Help: "Which version of the policies in the store is in force on this instance; 0: those of a file, or the examples.",
	})
	setBreaker(g.breaker, BreakerClosed)
	return g
}

func (g *gauges) collectors() []prometheus.Collector {
	return []prometheus.Collector{g.clockOffset, g.sweepProgress, g.sweepFinished, g.swept, g.breaker, g.caveats, g.policies}
}

// SetPoliciesVersion says which version of the policies in the store is in force, 0 for none.
func (m *Metrics) SetPoliciesVersion(version int64) { m.gauges.policies.Set(float64(version)) }

// SetClockOffset says how far this instance's clock is ahead of the store's.
func (m *Metrics) SetClockOffset(ahead time.Duration) { m.gauges.clockOffset.Set(ahead.Seconds()) }

// SetSweepProgress says how much of the store the current sweep has visited, 0 to 1.
func (m *Metrics) SetSweepProgress(ratio float64) { m.gauges.sweepProgress.Set(ratio) }

// SetSweepFinished says when a sweep was finished.
func (m *Metrics) SetSweepFinished(at time.Time) {
	m.gauges.sweepFinished.Set(float64(at.UnixMilli()) / 1000)
}

// AddSwept counts keys of which expired counters were deleted; keys is not negative.
func (m *Metrics) AddSwept(keys int) { m.gauges.swept.Add(float64(keys)) }

// SetBreaker says which state the breaker is in. One that is not known clears all.
func (m *Metrics) SetBreaker(state BreakerState) { setBreaker(m.gauges.breaker, state) }

// SetCaveat says whether the cluster has a caveat, of which there are few. Whether it is accepted does not
// change while a process runs.
func (m *Metrics) SetCaveat(caveat string, accepted, has bool) {
	value := 0.0
	if has {
		value = 1
	}
	m.gauges.caveats.WithLabelValues(caveat, strconv.FormatBool(accepted)).Set(value)
}

func setBreaker(v *prometheus.GaugeVec, state BreakerState) {
	for _, s := range breakerStates {
		value := 0.0
		if s == state {
			value = 1
		}
		v.WithLabelValues(string(s)).Set(value)
	}
}
