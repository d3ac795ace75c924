package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
)

// behind publishes how far the store is behind what was admitted.
type behind struct {
	now     func() counted.Behind
	metrics []behindMetric
}

// behindMetric is one number of limiter.Behind.
type behindMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*counted.Behind) float64
}

// NewBehind returns what publishes how far the store is behind what was admitted: what now says
// at each scrape.
func NewBehind(now func() counted.Behind) prometheus.Collector {
	b := &behind{now: now}
	b.add(prometheus.GaugeValue, func(n *counted.Behind) float64 { return float64(n.Waiting) }, prometheus.Opts{
		Name: "ratelimitd_local_waiting_keys",
		Help: "Keys of which something that was admitted under guarantee local waits to be written to the store.",
	})
	b.add(prometheus.GaugeValue, func(n *counted.Behind) float64 { return n.Lag.Seconds() }, prometheus.Opts{
		Name: "ratelimitd_local_lag_seconds",
		Help: "How long ago the oldest of what waits to be written to the store was admitted.",
	})
	b.add(prometheus.CounterValue, func(n *counted.Behind) float64 { return float64(n.Written) }, prometheus.Opts{
		Name: "ratelimitd_local_written_total",
		Help: "Writes of what was admitted under guarantee local that the store acknowledged, each of one key.",
	})
	b.add(prometheus.CounterValue, func(n *counted.Behind) float64 { return float64(n.Failed) }, prometheus.Opts{
		Name: "ratelimitd_local_failures_total",
		Help: "Writes of what was admitted under guarantee local that failed, and are repeated.",
	})
	return b
}

func (b *behind) add(kind prometheus.ValueType, value func(*counted.Behind) float64, opts prometheus.Opts) {
	b.metrics = append(b.metrics, behindMetric{prometheus.NewDesc(opts.Name, opts.Help, nil, nil), kind, value})
}

// Describe sends the descriptions.
func (b *behind) Describe(to chan<- *prometheus.Desc) {
	for i := range b.metrics {
		to <- b.metrics[i].desc
	}
}

// Collect sends the numbers as they are now.
func (b *behind) Collect(to chan<- prometheus.Metric) {
	now := b.now()
	for i := range b.metrics {
		m := &b.metrics[i]
		to <- prometheus.MustNewConstMetric(m.desc, m.kind, m.value(&now))
	}
}
