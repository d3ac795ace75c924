package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
)

// NewBehind returns a collector of how far the store is behind admitted units: what now says
// at each scrape.
func NewBehind(now func() counted.Behind) prometheus.Collector {
	s := new(scraped)
	waiting := s.figure("ratelimitd_local_waiting_keys",
		"Keys of which something that was admitted under guarantee local waits to be written to the store.")
	lag := s.figure("ratelimitd_local_lag_seconds", "How long ago the oldest units that wait to be written to the store were admitted.")
	written := s.figure("ratelimitd_local_written_total",
		"Writes of units admitted under guarantee local that the store acknowledged, each of one key.")
	failed := s.figure("ratelimitd_local_failures_total",
		"Writes of units admitted under guarantee local that failed, and are repeated.")
	s.collect = func(to chan<- prometheus.Metric) {
		b := now()
		to <- waiting.is(float64(b.Waiting))
		to <- lag.is(b.Lag.Seconds())
		to <- written.is(float64(b.Written))
		to <- failed.is(float64(b.Failed))
	}
	return s
}
