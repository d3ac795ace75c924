// Package metrics has the metrics of the service for Prometheus: decisions, requests, the store, the clock, and how far
// callers go past their limits.
//
// Every label has few values: names of policies and limits, whose series end with them, and words of this package. No
// identifier or key is in a metric. The packages that decide, serve and store do not import it; the command wires it
// up.
package metrics

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// Metrics has the metrics of a process. A limiter.Observer has its methods. It is safe for concurrent use; make it with New.
type Metrics struct {
	now func() time.Time

	decisions decisionVecs

	confirmations confirmationVecs
	Countries     Countries                // to be set before SetPolicies
	http          *prometheus.HistogramVec // route, status
	store         *prometheus.HistogramVec // op, outcome
	gauges        gauges
	process       processSeries
	overshoot     *overshoot.Table

	traced bool // operations on the store may be part of traces

	setting  sync.Mutex // held while the set of series changes
	policies atomic.Pointer[map[string]*policySeries]

	requests, operations resolved[prometheus.Observer] // series of http and store
}

// flushEvery is the interval at which ended episodes of overshoot are published, about that of Prometheus' scrapes.
const flushEvery = 10 * time.Second

// New returns metrics registered with reg, which must not have their names. A nil now means time.Now. No policy has
// metrics until SetPolicies.
func New(reg prometheus.Registerer, now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	auto := factory{promauto.With(reg)}
	m := &Metrics{
		now: now, decisions: newDecisionVecs(auto), confirmations: newConfirmationVecs(auto),
		http: newHTTPVec(auto), store: newStoreVec(auto), gauges: newGauges(auto), process: newProcessSeries(auto),
	}
	m.SetBreaker(true)
	m.overshoot = overshoot.New(m.episodeEnded, overshoot.DefaultMaxKeys)
	m.policies.Store(&map[string]*policySeries{})
	auto.number("ratelimitd_overshoot_keys", "Keys that are over their limit, and whose further attempts are counted.", m.overshoot.Len)
	reg.MustRegister(newOpenKeys(m), newUsedBounds(m))
	return m
}

// ShowTraces adds traces as exemplars to the times of the store's operations. Call it before anything is observed.
func (m *Metrics) ShowTraces() { m.traced = true }

// Run publishes episodes of overshoot as they end, until ctx ends. It returns nil.
func (m *Metrics) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			m.overshoot.Flush(m.now())
		}
	}
}

// Handler serves the metrics of gathered in the format of the request.
func Handler(gathered prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(gathered, promhttp.HandlerOpts{EnableOpenMetrics: true})
}

// durationBuckets are around a decision in memory (below a millisecond), one by a store
// nearby (a few), and the default store timeout of 500 ms.
var durationBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}

func newHTTPVec(auto factory) *prometheus.HistogramVec {
	return auto.histograms("ratelimitd_http_request_duration_seconds", "Time to answer a request, by route and class of status.",
		durationBuckets, "route", "status")
}

// ObserveHTTP counts an answered request, with its trace as an exemplar unless that is empty. route must be a pattern,
// never a path.
func (m *Metrics) ObserveHTTP(route string, status int, d time.Duration, trace string) {
	observe(m.requests.of([2]string{route, statusClass(status)}, m.http.WithLabelValues), d, trace)
}

// observe counts d, with the id of a trace as an exemplar unless it is empty.
func observe(series prometheus.Observer, d time.Duration, trace string) {
	if trace != "" {
		series.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	series.Observe(d.Seconds())
}

// statusClass returns a class such as "2xx", or "other" for a number that is not a status.
func statusClass(status int) string {
	classes := [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	if status < 100 || status >= 100*(len(classes)+1) {
		return "other"
	}
	return classes[status/100-1]
}
