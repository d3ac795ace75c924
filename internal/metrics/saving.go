package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
)

// NewSaving returns a collector of saves of counts to a disk, as returned by saving.
func NewSaving(now func() time.Time, saving func() embedded.Saving) prometheus.Collector {
	s := new(scraped)
	unsaved := s.figure("ratelimitd_data_unsaved_seconds",
		"Age of the oldest counts that are not in --data-dir because saving fails, 0 if it does not fail.")
	failures := s.figure("ratelimitd_data_save_failures_total", "Failed attempts to save counts in --data-dir.")
	s.collect = func(to chan<- prometheus.Metric) {
		said, age := saving(), 0.0
		if !said.Since.IsZero() {
			age = max(0, now().Sub(said.Since).Seconds())
		}
		to <- unsaved.is(age)
		to <- failures.is(float64(said.Failures))
	}
	return s
}
