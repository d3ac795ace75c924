package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
)

// NewBehind returns a collector of admitted units that are not yet written to the store, as returned by now.
func NewBehind(now func() counted.Behind) prometheus.Collector {
	s := new(scraped)
	waiting := s.figure("ratelimitd_local_waiting_keys",
		"Keys with units that were admitted under guarantee local and are not yet written to the store.")
	lag := s.figure("ratelimitd_local_lag_seconds",
		"Age of the oldest units that were admitted under guarantee local and are not yet written to the store.")
	written := s.figure("ratelimitd_local_written_total",
		"Writes of units admitted under guarantee local that the store acknowledged, each of one key.")
	failed := s.figure("ratelimitd_local_failures_total",
		"Failed writes of units admitted under guarantee local. They are retried.")
	s.collect = func(to chan<- prometheus.Metric) {
		b := now()
		to <- waiting.is(float64(b.Waiting))
		to <- lag.is(b.Lag.Seconds())
		to <- written.is(float64(b.Written))
		to <- failed.is(float64(b.Failed))
	}
	return s
}
