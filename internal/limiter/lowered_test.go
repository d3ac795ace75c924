package limiter_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// lowering are the ways in which less is allowed than was counted.
var lowering = map[string]func(t *testing.T, e *limiter.Engine, p policy.Policy) int64{
	"a reload": func(t *testing.T, e *limiter.Engine, p policy.Policy) int64 {
		p.Limits = slices.Clone(p.Limits)
		p.Limits[0].Limit = 5
		if err := e.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		return 5
	},
	"an override": func(t *testing.T, e *limiter.Engine, p policy.Policy) int64 {
		name := p.WithDefaults().Limits[0].Name
		_, err := e.Overrides.Set(t.Context(), "p", somebody.Identifier, demand.Override{
			Kind: policy.OverrideLimits, Until: store.InstantOf(time.Now().Add(30 * 24 * time.Hour)),
			Limits: []demand.LimitOverride{{Name: name, Limit: 5}},
		})
		if err != nil {
			t.Fatal(err)
		}
		return 5
	},
	"records": func(t *testing.T, e *limiter.Engine, p policy.Policy) int64 {
		return p.Limits[0].Limit
	},
}

// Past its limit an identifier is told of more than the limit, and of no more than is used,
// by every operation; and how long to wait.
func TestUsedPastTheLimit(t *testing.T) {
	for name, policy := range manyCounts(10, 5*time.Minute) {
		for how, lower := range lowering {
			for _, store := range []store.Store{embedded.New(nil), newFakeStore()} {
				bubble(t, fmt.Sprintf("%s, lowered by %s, %T", name, how, store), func(t *testing.T) {
					e := newEngine(t, store, 0, policy)
					running(t, e)
					for range 10 {
						mustTake(t, e)
						time.Sleep(10 * time.Millisecond)
					}
					truth, limit := int64(10), lower(t, e, policy)
					look := func(what string, op func(context.Context, limiter.Demand) (count.Decision, error)) count.Decision {
						t.Helper()
						got, err := op(t.Context(), somebody)
						if err != nil || got.Used < min(truth, limit+1) || got.Used > truth || got.Remaining != 0 || got.TightestLimit().Limit != limit {
							t.Errorf("%s: %+v, %v: want %d to %d used of %d", what, got.Verdict, err, min(truth, limit+1), truth, limit)
						}
						return got
					}
					look("a check", e.Check)
					look("a take", e.Take)
					for range 3 {
						truth++
						look("a record", e.Record)
						look("a check after it", e.Check)
					}
					denied := look("a take", e.Take)
					time.Sleep(denied.RetryAfter - time.Second)
					if d := mustTake(t, e); denied.Allowed || d.Allowed {
						t.Errorf("admitted before %v were over", denied.RetryAfter)
					}
					time.Sleep(time.Second)
					if d := mustTake(t, e); !d.Allowed {
						t.Errorf("denied after %v: %+v", denied.RetryAfter, d.Verdict)
					}
				})
			}
		}
	}
}
