package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gauges are set by other parts of the program.
type gauges struct {
	clockOffset   prometheus.Gauge
	sweepProgress prometheus.Gauge
	sweepFinished prometheus.Gauge
	swept         prometheus.Counter
	breaker       *prometheus.GaugeVec // state
	caveats       *prometheus.GaugeVec // caveat, accepted
	policies      prometheus.Gauge
}

func newGauges(auto factory) gauges {
	return gauges{
		clockOffset: auto.gauge("ratelimitd_clock_offset_seconds",
			"How far this instance's clock is ahead of the store's, negative if it is behind."),
		sweepProgress: auto.gauge("ratelimitd_sweeper_progress_ratio",
			"Share of the store that the current sweep of expired counters has visited, 0 to 1."),
		sweepFinished: auto.gauge("ratelimitd_sweeper_finished_timestamp_seconds",
			"Time when this instance last finished a sweep, 0 if it never did."),
		swept: auto.counter("ratelimitd_sweeper_swept_total", "Keys whose expired counters the sweeper deleted."),
		breaker: auto.gauges("ratelimitd_breaker_state",
			"1 for the current state of the store's breaker, 0 for the others.", "state"),
		caveats: auto.gauges("ratelimitd_cluster_caveat",
			"1 if the cluster may forget or misjudge acknowledged writes because of this caveat, 0 if not. It is checked daily. "+
				"accepted is true for caveats in --accept-caveats.",
			"caveat", "accepted"),
		policies: auto.gauge("ratelimitd_policies_version",
			"Version of the store's policies that is in force on this instance, 0 if the policies are from a file or are the examples."),
	}
}

// SetPoliciesVersion sets the version of the policies in force, 0 for none.
func (m *Metrics) SetPoliciesVersion(version int64) { m.gauges.policies.Set(float64(version)) }

// SetClockOffset sets how far this instance's clock is ahead of the store's.
func (m *Metrics) SetClockOffset(ahead time.Duration) { m.gauges.clockOffset.Set(ahead.Seconds()) }

// SetSweepProgress sets the part of the store that the current sweep has visited, 0 to 1.
func (m *Metrics) SetSweepProgress(ratio float64) { m.gauges.sweepProgress.Set(ratio) }

// SetSweepFinished sets the time of the last finished sweep.
func (m *Metrics) SetSweepFinished(at time.Time) {
	m.gauges.sweepFinished.Set(float64(at.UnixMilli()) / 1000)
}

// AddSwept counts keys whose expired counters were deleted. keys must not be negative.
func (m *Metrics) AddSwept(keys int) { m.gauges.swept.Add(float64(keys)) }

// SetBreaker sets the state of the breaker: closed, so that requests go to the store, or open, so that one probe at a
// time does.
func (m *Metrics) SetBreaker(closed bool) {
	m.gauges.breaker.WithLabelValues("closed").Set(oneIf(closed))
	m.gauges.breaker.WithLabelValues("open").Set(oneIf(!closed))
}

// SetCaveat sets whether the cluster has a caveat, of which there are few. accepted does not change while a process
// runs.
func (m *Metrics) SetCaveat(caveat string, accepted, has bool) {
	m.gauges.caveats.WithLabelValues(caveat, strconv.FormatBool(accepted)).Set(oneIf(has))
}
