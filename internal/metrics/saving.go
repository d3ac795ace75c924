package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
)

// saving publishes how keeping counts on a disk goes.
type saving struct {
	now               func() time.Time
	saving            func() embedded.Saving
	unsaved, failures *prometheus.Desc
}

// NewSaving returns what publishes how keeping counts on a disk goes: what saving says at each
// scrape.
func NewSaving(now func() time.Time, of func() embedded.Saving) prometheus.Collector {
	unsaved := prometheus.Opts{
		Name: "ratelimitd_data_unsaved_seconds",
		Help: "Age of the oldest counts that --data-dir does not have because saving fails; 0: it does not fail.",
	}
	failures := prometheus.Opts{
		Name: "ratelimitd_data_save_failures_total",
		Help: "How often counts could not be saved in --data-dir.",
	}
	return &saving{
		now: now, saving: of,
		unsaved:  prometheus.NewDesc(unsaved.Name, unsaved.Help, nil, nil),
		failures: prometheus.NewDesc(failures.Name, failures.Help, nil, nil),
	}
}

// Describe sends the descriptions.
func (s *saving) Describe(to chan<- *prometheus.Desc) { to <- s.unsaved; to <- s.failures }

// Collect sends the numbers as they are now.
func (s *saving) Collect(to chan<- prometheus.Metric) {
	said, age := s.saving(), 0.0
	if !said.Since.IsZero() {
		age = max(0, s.now().Sub(said.Since).Seconds())
	}
	to <- prometheus.MustNewConstMetric(s.unsaved, prometheus.GaugeValue, age)
	to <- prometheus.MustNewConstMetric(s.failures, prometheus.CounterValue, float64(said.Failures))
}
