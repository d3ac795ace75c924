package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
)

func TestSaving(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		said    embedded.Saving
		unsaved string
	}{
		{embedded.Saving{Failures: 3, Since: now.Add(-90 * time.Second)}, "90"},
		{embedded.Saving{Failures: 3, Since: now.Add(time.Hour)}, "0"}, // the clock was set back
		{embedded.Saving{Failures: 3}, "0"},
	} {
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(NewSaving(func() time.Time { return now }, func() embedded.Saving { return test.said }))
		want := `
			# HELP ratelimitd_data_save_failures_total Failed attempts to save counts in --data-dir.
			# TYPE ratelimitd_data_save_failures_total counter
			ratelimitd_data_save_failures_total 3
			# HELP ratelimitd_data_unsaved_seconds Age of the oldest counts that are not in --data-dir because saving fails, 0 if it does not fail.
			# TYPE ratelimitd_data_unsaved_seconds gauge
			ratelimitd_data_unsaved_seconds ` + test.unsaved + "\n"
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Error(err)
		}
	}
}
