package limiter_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// TestDecisionsStayAsTheyWere, whatever is decided after them and whatever their callers
// do with their own.
func TestDecisionsStayAsTheyWere(t *testing.T) {
	one := policyOf("sliding-log", 100, time.Hour)
	two := policyOf("sliding-log", 100, time.Hour)
	two.Limits = append(two.Limits, policy.Limit{Algorithm: "fixed-window", Limit: 1000, Window: 24 * time.Hour})
	for _, p := range []policy.Policy{one, two} {
		t.Run(strconv.Itoa(len(p.Limits)), func(t *testing.T) { testDecisionsStay(t, p) })
	}
}

func testDecisionsStay(t *testing.T, p policy.Policy) {
	e := limiter.New(embedded.New(nil), nil)
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	taken := make([]count.Decision, 50)
	for i := range taken {
		taken[i] = mustTake(t, e)
	}
	for i := range taken {
		_ = append(taken[i].Limits(), count.LimitDecision{})
	}
	for i := range taken {
		for _, l := range taken[i].Limits() {
			if used := int64(i + 1); l.Limit == nil || l.Used != used || l.Remaining != l.Limit.Limit-used {
				t.Errorf("take %d: %+v", i+1, l)
			}
		}
	}
}
