package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/connections"
)

// boundSeries are the metrics of connections and requests that the server's bounds of memory turned away.
type boundSeries struct {
	registry *prometheus.Registry
	turned   *prometheus.CounterVec // bound
	counts   []func() int           // of open connections, by listener
}

func newBoundSeries(registry *prometheus.Registry) *boundSeries {
	b := &boundSeries{registry: registry, turned: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "ratelimitd_http_turned_away_total",
		Help: "Connections and requests turned away by a bound of memory: connections refused, idle ones closed for new ones, " +
			"requests with large bodies, requests of a full proxy.",
	}, []string{"bound"})}
	registry.MustRegister(b.turned)
	b.reachable(api.Bounds...)
	return b
}

// reachable starts the counters of bounds at zero, so that rates can be computed.
func (b *boundSeries) reachable(bounds ...connections.Bound) {
	for _, bound := range bounds {
		b.turned.WithLabelValues(string(bound))
	}
}

// reached counts a connection or request that bound turned away.
func (b *boundSeries) reached(bound connections.Bound) { b.turned.WithLabelValues(string(bound)).Inc() }

// open publishes the number of open connections, summed over all listeners. It must not be called once metrics are
// served.
func (b *boundSeries) open(count func() int) {
	if b.counts = append(b.counts, count); len(b.counts) > 1 {
		return
	}
	b.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ratelimitd_http_connections",
		Help: "Connections of clients that are open, to the API and to the proxy.",
	}, func() float64 {
		sum := 0
		for _, count := range b.counts {
			sum += count()
		}
		return float64(sum)
	}))
}
