package ui

import (
	"math"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Outcomes of decisions. Denials have four reasons.
const (
	allowed = iota
	denied  // over a limit
	blocked
	refused
	degradedDenied
	wouldDeny
	callsAllowed
	callsDenied
	callsWouldDeny
	kinds
)

// callsOf maps the kinds of decisions to those of calls.
var callsOf = [...]int{
	allowed: callsAllowed, denied: callsDenied, blocked: callsDenied, refused: callsDenied, degradedDenied: callsDenied,
	wouldDeny: callsWouldDeny,
}

// outcomes are numbers of decisions, and of calls, by outcome.
type outcomes [kinds]float64

// kindOf maps the outcomes in the metrics. Decisions that mode off or on_store_error allowed count as allowed.
var kindOf = map[string]int{
	"allowed": allowed, "off": allowed, "degraded_allowed": allowed,
	"denied": denied, "blocked": blocked, "refused": refused, "degraded_denied": degradedDenied,
	"would_deny": wouldDeny,
}

// decisionRoutes are the routes whose latency is shown.
var decisionRoutes = []string{"/v1/check", "/v1/record", "/v1/take", "/v1/batch", "/v1/forward-auth"}

// storeSucceeds are the outcomes of operations that are not failures of the store.
var storeSucceeds = []string{"ok", "conflict", "canceled"}

// reading has an instance's counts since its start, at an instant. The zero reading has none.
type reading struct {
	at            time.Time
	policies      map[string]outcomes
	confirmations map[destination]confirmations
	requests      Histogram // durations of decisions asked for by HTTP or by Envoy
	store         Histogram // durations of the store's operations
	storeFailures float64
	degraded      float64
	gauges        map[string]float64 // by name
	breakerOpen   bool
}

// newReading picks the figures of the page from all metrics.
func newReading(at time.Time, families []*dto.MetricFamily) reading {
	r := reading{
		at: at, policies: make(map[string]outcomes), confirmations: make(map[destination]confirmations), gauges: make(map[string]float64),
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			r.add(f.GetName(), m)
		}
	}
	return r
}

func (r *reading) add(name string, m *dto.Metric) {
	switch name {
	case "ratelimitd_decisions_total", "ratelimitd_calls_total":
		of := r.policies[label(m, "policy")]
		if kind, known := kindOf[label(m, "outcome")]; known {
			if name == "ratelimitd_calls_total" {
				kind = callsOf[kind]
			}
			of[kind] += m.GetCounter().GetValue()
		}
		r.policies[label(m, "policy")] = of
	case "ratelimitd_sent_units_total", "ratelimitd_confirmed_units_total", "ratelimitd_refunded_units_total",
		"ratelimitd_unconfirmed_used_ratio":
		r.addConfirmations(name, m)
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

// since returns the increase since before. Counters of a policy that was removed and added again start at 0.
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

// denials returns the number of denials, whatever their reason.
func (o outcomes) denials() float64 { return o[denied] + o[blocked] + o[refused] + o[degradedDenied] }

// Histogram is the distribution of durations, in seconds. The zero Histogram has none.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // upper bounds of all buckets but the last
	Counts []float64 `json:"counts"` // cumulative
}

// add adds a histogram with the same buckets.
func (h *Histogram) add(from *dto.Histogram) {
	buckets := from.GetBucket()
	if n := len(buckets); n > 0 && math.IsInf(buckets[n-1].GetUpperBound(), 1) { // present for its exemplar
		buckets = buckets[:n-1]
	}
	of := Histogram{make([]float64, len(buckets)), make([]float64, len(buckets)+1)}
	for i, b := range buckets {
		of.Bounds[i], of.Counts[i] = b.GetUpperBound(), float64(b.GetCumulativeCount())
	}
	of.Counts[len(buckets)] = float64(from.GetSampleCount())
	h.plus(&of)
}

// plus adds other, if it has the same buckets.
func (h *Histogram) plus(other *Histogram) {
	if h.Counts == nil {
		h.Bounds, h.Counts = other.Bounds, slices.Clone(other.Counts)
		return
	}
	if !slices.Equal(h.Bounds, other.Bounds) || len(h.Counts) != len(other.Counts) {
		return
	}
	for i := range h.Counts {
		h.Counts[i] += other.Counts[i]
	}
}

// since returns the increase since before.
func (h *Histogram) since(before *Histogram) Histogram {
	more := Histogram{h.Bounds, slices.Clone(h.Counts)}
	for i := range before.Counts {
		more.Counts[i] -= before.Counts[i]
	}
	return more
}

// quantile returns the q-quantile as Prometheus's histogram_quantile estimates it, NaN without durations.
func (h *Histogram) quantile(q float64) float64 {
	last := len(h.Counts) - 1
	if last < 1 || last != len(h.Bounds) || h.Counts[last] <= 0 {
		return math.NaN()
	}
	rank := q * h.Counts[last]
	for i, bound := range h.Bounds {
		if h.Counts[i] < rank {
			continue
		}
		lower, below := 0.0, 0.0
		if i > 0 {
			lower, below = h.Bounds[i-1], h.Counts[i-1]
		}
		return lower + (bound-lower)*(rank-below)/(h.Counts[i]-below)
	}
	return h.Bounds[last-1] // or longer
}
