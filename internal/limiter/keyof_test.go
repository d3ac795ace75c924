package limiter_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// lastKey is the key that was observed last.
type lastKey struct {
	key  store.Key
	cost int64
}

func (l *lastKey) observe(_ count.Op, key store.Key, cost int64, _ *count.Decision) {
	l.key, l.cost = key, cost
}

// TestKeyOf is the key that observers learn of, with the cost, however the policy is
// kept and over either kind of store.
func TestKeyOf(t *testing.T) {
	of := func(name string, algorithms ...string) policy.Policy {
		p := policy.Policy{Name: name}
		for _, a := range algorithms {
			p.Limits = append(p.Limits, policy.Limit{Algorithm: a, Limit: 10, Window: time.Minute})
		}
		return p
	}
	policies := []policy.Policy{
		of("log", "sliding-log"), of("counter", "fixed-window"), of("bucket", "token-bucket"), of("both", "sliding-log", "fixed-window"),
	}
	for name, store := range map[string]store.Store{"exclusive": embedded.New(nil), "shared": newFakeStore()} {
		seen := new(lastKey)
		keyer := keys.Keyer{Namespace: "n", Secret: &keys.HashKey{ID: "k", Secret: make([]byte, keys.MinSecretLen)}}
		e := limiter.New(store, &limiter.Options{Keyer: keyer, Datacenter: "dc", Observer: limiter.Observer{Decided: seen.observe}})
		if err := e.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		for _, p := range policies {
			if _, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "a", Cost: 3}); err != nil {
				t.Errorf("%s, %s: %v", name, p.Name, err)
			}
			if key, err := e.KeyOf(p.Name, "a"); err != nil || key != seen.key || seen.cost != 3 {
				t.Errorf("%s, %s: %v, %v, and observed was %v with a cost of %d", name, p.Name, key, err, seen.key, seen.cost)
			}
		}
		if _, err := e.KeyOf("unknown", "a"); !errors.Is(err, limiter.ErrUnknownPolicy) {
			t.Errorf("an unknown policy: %v", err)
		}
		if _, err := e.KeyOf("log", ""); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("no identifier: %v", err)
		}
	}
}
