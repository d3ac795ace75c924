package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// behind publishes how far the store is behind what was decided in memory.
type behind struct {
	now     func() limiter.Behind
	metrics []behindMetric
}

// behindMetric is one number of limiter.Behind.
type behindMetric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*limiter.Behind) float64
}

// NewBehind returns what publishes how far the store is behind what was decided in
// memory: what now says at each scrape.
func NewBehind(now func() limiter.Behind) prometheus.Collector {
	b := &behind{now: now}
	b.add(prometheus.GaugeValue, func(n *limiter.Behind) float64 { return float64(n.Waiting) }, prometheus.Opts{
		Name: "ratelimitd_local_waiting_keys",
		Help: "Keys counted in memory that wait to be written to the store, or to be read there, or are at it.",
	})
	b.add(prometheus.GaugeValue, func(n *limiter.Behind) float64 { return n.Lag.Seconds() }, prometheus.Opts{
		Name: "ratelimitd_local_lag_seconds",
		Help: "For how long the oldest of the keys that wait to be written to the store, or to be read there, has.",
	})
	b.add(prometheus.CounterValue, func(n *limiter.Behind) float64 { return float64(n.Written) }, prometheus.Opts{
		Name: "ratelimitd_local_written_total",
		Help: "Writes of what was counted in memory that the store acknowledged, each of one key.",
	})
	b.add(prometheus.CounterValue, func(n *limiter.Behind) float64 { return float64(n.Merged) }, prometheus.Opts{
		Name: "ratelimitd_local_merged_total",
		Help: "Reads of what other instances counted in memory, each of one key.",
	})
	b.add(prometheus.CounterValue, func(n *limiter.Behind) float64 { return float64(n.Failed) }, prometheus.Opts{
		Name: "ratelimitd_local_failures_total",
		Help: "Keys counted in memory whose write or read failed, and is repeated.",
	})
	return b
}

func (b *behind) add(kind prometheus.ValueType, value func(*limiter.Behind) float64, opts prometheus.Opts) {
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
