package cassandra_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/seen"
)

// keysSeen are the keys that an engine decided for.
type keysSeen struct {
	mu   sync.Mutex
	keys map[store.Key]bool
}

func (k *keysSeen) observe(_ count.Op, key store.Key, _ int64, _ *count.Decision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys[key] = true
}

// TestLookThroughFindsAllKeys counts for keys in every table, for more than go by one page in one of them, and
// resets a key of which nothing is counted. All of them must be found, each in its slot.
func TestLookThroughFindsAllKeys(t *testing.T) {
	s := newStore(t, newConfig(t))
	observed := &keysSeen{keys: make(map[store.Key]bool)}
	engine := limiter.New(s, &limiter.Options{Observer: limiter.Observer{Decided: observed.observe}, StoreTimeout: 10 * time.Second})
	var policies []policy.Policy
	add := func(name, algorithm string, counting policy.Counting, window time.Duration) {
		policies = append(policies, policy.Policy{
			Name: name, Counting: counting, Limits: []policy.Limit{{Algorithm: algorithm, Limit: 5, Window: window}},
		})
	}
	for span, window := range map[string]time.Duration{"hour": time.Hour, "day": 24 * time.Hour, "month": 30 * 24 * time.Hour} {
		add("log-"+span, "sliding-log", "", window)
		add("rows-"+span, "fixed-window", policy.CountingRows, window)
	}
	add("counters", "fixed-window", policy.CountingCounters, time.Hour)
	add("cells", "token-bucket", "", time.Hour)
	if err := engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	for i := range policies {
		if _, err := engine.Take(t.Context(), limiter.Demand{Policy: policies[i].Name, Identifier: "somebody"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, reset := range []string{"log-day", "rows-month"} {
		forgotten := limiter.Demand{Policy: reset, Identifier: "nobody counted anything for"}
		if _, err := engine.Check(t.Context(), forgotten); err != nil {
			t.Fatal(err)
		}
		if err := engine.Reset(t.Context(), reset, forgotten.Identifier); err != nil {
			t.Fatal(err)
		}
	}
	const many = 1_200 // of pages of 1,000
	var callers sync.WaitGroup
	for worker := range 8 {
		callers.Go(func() {
			for i := worker; i < many; i += 8 {
				demand := limiter.Demand{Policy: "log-hour", Identifier: keys.Identifier(fmt.Sprint(i))}
				if _, err := engine.Take(context.WithoutCancel(t.Context()), demand); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	callers.Wait()

	type place struct {
		slot int
		key  seen.Hash
	}
	found, now := make(map[place]bool), time.Now()
	err := s.Members("any").LookThrough(t.Context(), func(slot int, key seen.Hash, until time.Time) {
		found[place{slot, key}] = true
		if left := until.Sub(now); left < 2*time.Hour {
			t.Errorf("a key matters for %s, want two windows at least", left)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	missing := 0
	for key := range observed.keys {
		a, b := key.Rest()
		if !found[place{cluster.SlotOf(key.Prefix()), seen.Hash{A: a, B: b}}] {
			missing++
		}
	}
	if want := many + len(policies) + 2; len(observed.keys) != want || missing > 0 || len(found) != want {
		t.Errorf("found %d keys, %d of %d are missing; e.g. %v", len(found), missing, len(observed.keys),
			slices.Collect(maps.Keys(observed.keys))[:1])
	}
}
