package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
)

func TestBehind(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewBehind(func() counted.Behind {
		return counted.Behind{Waiting: 3, Lag: 1500 * time.Millisecond, Written: 40, Failed: 1}
	}))
	want := `
		# HELP ratelimitd_local_failures_total Failed writes of units admitted under guarantee local. They are retried.
		# TYPE ratelimitd_local_failures_total counter
		ratelimitd_local_failures_total 1
		# HELP ratelimitd_local_lag_seconds Age of the oldest units that were admitted under guarantee local and are not yet written to the store.
		# TYPE ratelimitd_local_lag_seconds gauge
		ratelimitd_local_lag_seconds 1.5
		# HELP ratelimitd_local_waiting_keys Keys with units that were admitted under guarantee local and are not yet written to the store.
		# TYPE ratelimitd_local_waiting_keys gauge
		ratelimitd_local_waiting_keys 3
		# HELP ratelimitd_local_written_total Writes of units admitted under guarantee local that the store acknowledged, each of one key.
		# TYPE ratelimitd_local_written_total counter
		ratelimitd_local_written_total 40
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
