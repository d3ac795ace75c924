//go:build !race

package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestEmbeddedTakeAllocatesItsVerdicts and nothing else, allowed or denied: what the logs
// of new events take is made rarely. The race detector throws borrowed memory away.
func TestEmbeddedTakeAllocatesItsVerdicts(t *testing.T) {
	for _, name := range []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail"} {
		for _, limit := range []int64{0, 10, 10_000} {
			e := limiter.New(embedded.New(nil), nil)
			if err := e.SetPolicies([]limiter.Policy{policyOf(name, limit, time.Hour)}); err != nil {
				t.Fatal(err)
			}
			got := testing.AllocsPerRun(1000, func() {
				if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "somebody"}); err != nil {
					t.Fatal(err)
				}
			})
			if got > 1 {
				t.Errorf("%s of %d: %v allocations", name, limit, got)
			}
		}
	}
}
