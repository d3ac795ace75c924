package limiter

import (
	"fmt"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Plans are found by their names, however many fall on one place, and nothing else is.
func TestPlansAreFoundByTheirNames(t *testing.T) {
	if found := new(planSet).of("p"); found != nil {
		t.Errorf("%v among none", found)
	}
	byName := make(map[string]*demand.Plan)
	for i := range 5 * nearPlans {
		name := fmt.Sprintf("policy-%d", i)
		byName[name] = &demand.Plan{Plan: count.Plan{Policy: policy.Policy{Name: name}}}
	}
	plans := newPlanSet(0, byName)
	for name, want := range byName {
		if plans.of(name) != want {
			t.Errorf("%q: another plan, or none", name)
		}
		for _, other := range []string{name + "x", "x" + name, name[1:], ""} {
			if found := plans.of(other); found != byName[other] {
				t.Errorf("%q: %v", other, found)
			}
		}
	}
}
