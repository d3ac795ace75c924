// Package metrics publishes what the service does to Prometheus: decisions,
// requests, the store, the clock, and by how much callers go past their limits.
//
// Every label has few values: names of policies and limits, whose series go when they do, and
// words from this package. It knows no identifier and no key leaves it. The packages that
// decide, serve and store do not import it: it is wired up from outside.
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

// Metrics are the metrics of one process. They implement limiter.Observer and are
// safe for concurrent use; make them with New.
type Metrics struct {
	now func() time.Time

	decisions decisionVecs

	confirmations confirmationVecs
	Countries     Countries // to be set before SetPolicies
	http          *prometheus.HistogramVec
	store         storeSeries
	gauges        gauges
	process       processSeries
	overshoot     *overshoot.Table

	traced bool // operations on the store may be part of traces

	setting  sync.Mutex // held while the set of series changes
	policies atomic.Pointer[map[string]*policySeries]
	requests resolved[prometheus.Observer]
}

// flushEvery is how often episodes of overshoot that are over are published: about
// as often as Prometheus comes by.
const flushEvery = 10 * time.Second

// New returns metrics that are registered with reg, which must have none of their
// names. A nil now means time.Now. No policy has metrics until SetPolicies.
func New(reg prometheus.Registerer, now func() time.Time) *Metrics {
	if now == nil {
		now = time.Now
	}
	auto := factory{promauto.With(reg)}
	m := &Metrics{
		now: now, decisions: newDecisionVecs(auto), confirmations: newConfirmationVecs(auto),
		http: newHTTPVec(auto), store: newStoreSeries(auto), gauges: newGauges(auto), process: newProcessSeries(auto),
	}
	m.SetBreaker(true)
	m.overshoot = overshoot.New(m.episodeEnded, nil)
	m.policies.Store(&map[string]*policySeries{})
	auto.number("ratelimitd_overshoot_keys", "Keys that are over their limit now and whose further attempts are counted.", m.overshoot.Len)
	reg.MustRegister(newOpenKeys(m), newUsedBounds(m))
	return m
}

// ShowTraces has the time of the store's operations shown with a trace that they were part of. It is to be
// called before anything is observed.
func (m *Metrics) ShowTraces() { m.traced = true }

// Run publishes episodes of overshoot as they end, until ctx does. It returns nil.
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

// Handler serves the metrics of gathered, in the format that the request asks for.
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

// ObserveHTTP counts an answered request, and shows its trace, if that is not empty. route must
// be one of few: a pattern, never a path.
func (m *Metrics) ObserveHTTP(route string, status int, d time.Duration, trace string) {
	observe(m.requests.of([2]string{route, statusClass(status)}, m.http.WithLabelValues), d, trace)
}

// observe counts d, with the id of a trace in which it was taken as exemplar; empty: none.
func observe(series prometheus.Observer, d time.Duration, trace string) {
	if trace != "" {
		series.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(), prometheus.Labels{"trace_id": trace})
		return
	}
	series.Observe(d.Seconds())
}

// statusClass returns "2xx" and its like, "other" for a number that is no status.
func statusClass(status int) string {
	classes := [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"}
	if status < 100 || status >= 100*(len(classes)+1) {
		return "other"
	}
	return classes[status/100-1]
}
