package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Envoy has the metrics of requests of Envoy. It is safe for concurrent use; make it with NewEnvoy.
type Envoy struct {
	requests    *prometheus.HistogramVec // method, code
	descriptors *prometheus.CounterVec   // domain, outcome

	// Series are looked up once, as hashing labels costs more than counting.
	byRequest    resolved[prometheus.Observer]
	byDescriptor resolved[prometheus.Counter]
}

// NewEnvoy returns metrics registered with reg, which must not have their names.
func NewEnvoy(reg prometheus.Registerer) *Envoy {
	auto := factory{promauto.With(reg)}
	return &Envoy{
		requests: auto.histograms("ratelimitd_envoy_request_duration_seconds",
			"Time to answer a request of Envoy, by method and by the code of the answer or of the gRPC error.", durationBuckets, "method", "code"),
		descriptors: auto.counters("ratelimitd_envoy_descriptors_total",
			"Descriptors in requests of Envoy, by domain and outcome.", "domain", "outcome"),
	}
}

// ObserveRequest counts an answered request, with its trace as an exemplar unless that is empty. method and code must
// have few values.
func (e *Envoy) ObserveRequest(method, code string, d time.Duration, trace string) {
	observe(e.byRequest.of([2]string{method, code}, e.requests.WithLabelValues), d, trace)
}

// ObserveDescriptor counts a descriptor. domain must be one of the file of policies, never one from a request.
func (e *Envoy) ObserveDescriptor(domain, outcome string) {
	e.byDescriptor.of([2]string{domain, outcome}, e.descriptors.WithLabelValues).Inc()
}
