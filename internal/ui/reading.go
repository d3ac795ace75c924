package ui

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// What became of decisions, in the order in which the page has it.
const (
	allowed = iota
	denied
	wouldDeny
	kinds
)

// outcomes are numbers of decisions by what became of them.
type outcomes [kinds]float64

// kindOf maps outcomes as the metrics have them. What on_store_error, a block or mode off decides is
// allowed or denied as well.
var kindOf = map[string]int{
	"allowed": allowed, "off": allowed, "degraded_allowed": allowed,
	"denied": denied, "blocked": denied, "degraded_denied": denied,
	"would_deny": wouldDeny,
}

// decisionRoutes are the routes of which the latency is told.
var decisionRoutes = []string{"/v1/check", "/v1/record", "/v1/take", "/v1/batch", "/v1/forward-auth"}

// storeSucceeds are the outcomes of the store's operations that are no failures of the store.
var storeSucceeds = []string{"ok", "conflict", "canceled"}

// reading is what an instance had counted since its start, at one moment. The zero reading is of one
// that has counted nothing.
type reading struct {
	at            time.Time
	policies      map[string]outcomes
	requests      histogram // durations of decisions asked for by HTTP or by Envoy
	store         histogram // durations of the store's operations
	storeFailures float64
	degraded      float64
	gauges        map[string]float64 // by name
	breakerOpen   bool
}

// newReading picks what the page shows from all metrics.
func newReading(at time.Time, families []*dto.MetricFamily) reading {
	r := reading{at: at, policies: make(map[string]outcomes), gauges: make(map[string]float64)}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			r.add(f.GetName(), m)
		}
	}
	return r
}

func (r *reading) add(name string, m *dto.Metric) {
	switch name {
	case "ratelimitd_decisions_total":
		of := r.policies[label(m, "policy")]
		of[kindOf[label(m, "outcome")]] += m.GetCounter().GetValue()
		r.policies[label(m, "policy")] = of
	case "ratelimitd_http_request_duration_seconds":
		if slices.Contains(decisionRoutes, label(m, "route")) {
			r.requests.add(m.GetHistogram())
		}
	case "ratelimitd_envoy_request_duration_seconds":
		r.requests.add(m.GetHistogram())
	case "ratelimitd_store_duration_seconds":
		r.store.add(m.GetHistogram())
		if !slices.Contains(storeSucceeds, label(m, "outcome")) {
			r.storeFailures += float64(m.GetHistogram().GetSampleCount())
		}
	case "ratelimitd_degraded_decisions_total":
		r.degraded += m.GetCounter().GetValue()
	case "ratelimitd_breaker_state":
		r.breakerOpen = r.breakerOpen || label(m, "state") == "open" && m.GetGauge().GetValue() == 1
	case "ratelimitd_clock_offset_seconds", "ratelimitd_local_waiting_keys", "ratelimitd_local_lag_seconds", "ratelimitd_data_unsaved_seconds":
		r.gauges[name] = m.GetGauge().GetValue()
	}
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// since returns how many more there are than before. Counters of a policy that went and came back
// began anew.
func (o outcomes) since(before outcomes) (more outcomes) {
	for i := range o {
		if more[i] = o[i] - before[i]; more[i] < 0 {
			more[i] = o[i]
		}
	}
	return more
}

func (o outcomes) plus(other outcomes) outcomes {
	for i := range o {
		o[i] += other[i]
	}
	return o
}

func (o outcomes) sum() (n float64) {
	for _, part := range o {
		n += part
	}
	return n
}

// histogram is how durations are spread, in seconds. The zero histogram has none.
type histogram struct {
	bounds []float64 // upper, of all buckets but the last, which has none
	counts []float64 // of each bucket and those below it
}

// add adds one of the same buckets.
func (h *histogram) add(from *dto.Histogram) {
	buckets := from.GetBucket()
	if h.bounds == nil {
		for _, b := range buckets {
			h.bounds = append(h.bounds, b.GetUpperBound())
		}
		h.counts = make([]float64, len(buckets)+1)
	}
	if len(buckets) != len(h.bounds) {
		return
	}
	for i, b := range buckets {
		h.counts[i] += float64(b.GetCumulativeCount())
	}
	h.counts[len(buckets)] += float64(from.GetSampleCount())
}

// quantile returns the q-quantile of what h has and before has not, as Prometheus's
// histogram_quantile estimates it: NaN if there is nothing.
func (h *histogram) quantile(q float64, before *histogram) float64 {
	last := len(h.counts) - 1
	more := func(i int) float64 {
		if before.counts == nil {
			return h.counts[i]
		}
		return h.counts[i] - before.counts[i]
	}
	if last < 0 || more(last) <= 0 {
		return math.NaN()
	}
	rank := q * more(last)
	for i, bound := range h.bounds {
		if more(i) < rank {
			continue
		}
		lower, below := 0.0, 0.0
		if i > 0 {
			lower, below = h.bounds[i-1], more(i-1)
		}
		return lower + (bound-lower)*(rank-below)/(more(i)-below)
	}
	return h.bounds[last-1] // or longer
}
