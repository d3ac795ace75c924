package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// TestDecisionsStayAsTheyWere, whatever is decided after them and whatever their callers
// do with their own.
func TestDecisionsStayAsTheyWere(t *testing.T) {
	p := policyOf("sliding-log", 100, time.Hour)
	p.Limits = append(p.Limits, limiter.Limit{Algorithm: "fixed-window", Limit: 1000, Window: 24 * time.Hour})
	e := limiter.New(embedded.New(nil), nil)
	if err := e.SetPolicies([]limiter.Policy{p}); err != nil {
		t.Fatal(err)
	}
	taken := make([]limiter.Decision, 50)
	for i := range taken {
		taken[i] = mustTake(t, e)
	}
	for i := range taken {
		_ = append(taken[i].Limits, limiter.LimitDecision{})
	}
	for i := range taken {
		for _, l := range taken[i].Limits {
			if used := int64(i + 1); l.Limit == nil || l.Used != used || l.Remaining != l.Limit.Limit-used {
				t.Errorf("take %d: %+v", i+1, l)
			}
		}
	}
}
