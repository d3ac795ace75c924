package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Envoy are the metrics of what Envoy asks. It is safe for concurrent use; make it with
// NewEnvoy.
type Envoy struct {
	requests    *prometheus.HistogramVec // method, code
	descriptors *prometheus.CounterVec   // domain, outcome

	// Series are looked up once, as hashing labels costs more than counting.
	byRequest    resolved[prometheus.Observer]
	byDescriptor resolved[prometheus.Counter]
}

// NewEnvoy returns metrics that are registered with reg, which must have none of their
// names.
func NewEnvoy(reg prometheus.Registerer) *Envoy {
	auto := factory{promauto.With(reg)}
	return &Envoy{
		requests: auto.histograms("ratelimitd_envoy_request_duration_seconds",
			"Time to answer a request of Envoy, by method and code: that of the answer, or of gRPC's error.", durationBuckets, "method", "code"),
		descriptors: auto.counters("ratelimitd_envoy_descriptors_total",
			"Descriptors that Envoy asked about, by domain and outcome.", "domain", "outcome"),
	}
}

// ObserveRequest counts an answered request, and shows its trace, if that is not empty. method and code must be
// of few.
func (e *Envoy) ObserveRequest(method, code string, d time.Duration, trace string) {
	observe(e.byRequest.of([2]string{method, code}, e.requests.WithLabelValues), d, trace)
}

// ObserveDescriptor counts a descriptor. domain must be of few: those of the file of policies, never ones that were sent.
func (e *Envoy) ObserveDescriptor(domain, outcome string) {
	e.byDescriptor.of([2]string{domain, outcome}, e.descriptors.WithLabelValues).Inc()
}
