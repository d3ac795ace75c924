package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func TestBehind(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(NewBehind(func() limiter.Behind {
		return limiter.Behind{Waiting: 3, Lag: 1500 * time.Millisecond, Written: 40, Merged: 20, Failed: 1}
	}))
	want := `
		# HELP ratelimitd_local_failures_total Keys counted in memory whose write or read failed, and is repeated.
		# TYPE ratelimitd_local_failures_total counter
		ratelimitd_local_failures_total 1
		# HELP ratelimitd_local_lag_seconds For how long the oldest of the keys that wait to be written to the store, or to be read there, has.
		# TYPE ratelimitd_local_lag_seconds gauge
		ratelimitd_local_lag_seconds 1.5
		# HELP ratelimitd_local_merged_total Reads of what other instances counted in memory, each of one key.
		# TYPE ratelimitd_local_merged_total counter
		ratelimitd_local_merged_total 20
		# HELP ratelimitd_local_waiting_keys Keys counted in memory that wait to be written to the store, or to be read there, or are at it.
		# TYPE ratelimitd_local_waiting_keys gauge
		ratelimitd_local_waiting_keys 3
		# HELP ratelimitd_local_written_total Writes of what was counted in memory that the store acknowledged, each of one key.
		# TYPE ratelimitd_local_written_total counter
		ratelimitd_local_written_total 40
	`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
