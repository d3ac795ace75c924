package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// An engine that learns late in which data centre it is counts there from then on, under the keys of those that knew it
// before; what is promised over the cluster stays where it was.
func TestDatacenterThatIsKnownLater(t *testing.T) {
	near, far := policyOf("sliding-log", 3, time.Minute), policyOf("sliding-log", 3, time.Minute)
	near.Name, far.Name = "near", "far"
	far.Consistency = policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum}
	engine := func(datacenter string) *limiter.Engine {
		e := limiter.New(newFakeStore(), &limiter.Options{Datacenter: datacenter})
		if err := e.SetPolicies([]policy.Policy{near, far}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	keyOf := func(e *limiter.Engine, policy string) store.Key {
		key, err := e.KeyOf(policy, "a")
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	late, east := engine(""), engine("east")
	if keyOf(late, "near") == keyOf(east, "near") {
		t.Error("the data centre is no part of the key")
	}
	if err := late.MoveTo("east"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, policy := range []string{"near", "far"} {
			if keyOf(late, policy) != keyOf(east, policy) {
				t.Errorf("%s: another key than of who knew the data centre", policy)
			}
		}
		if err := late.SetPolicies([]policy.Policy{near, far}); err != nil { // and it stays known
			t.Fatal(err)
		}
	}
}
