package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// TestIdempotencyKeysKeepNobodyOut has identifiers come under many more idempotency keys than the store has room for: it still has
// room for another identifier's key, and for its counts.
func TestIdempotencyKeysKeepNobodyOut(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine, and tens of thousands of calls")
	}
	const maxKeys = 6400
	take := func(e *limiter.Engine, policy, identifier, key string) error {
		_, err := e.Do(context.Background(), &limiter.Call{
			Op: count.OpTake, Demands: []limiter.Demand{{Policy: policy, Identifier: keys.Identifier(identifier)}}, IdempotencyKey: key,
		})
		return err
	}
	for what, flood := range map[string]struct {
		policy      string
		identifiers int
		refused     bool // some of its own calls are
	}{
		"one that is denied":   {"few", 1, false},
		"one that is admitted": {"many", 1, true},
		"a thousand":           {"many", 1000, true},
	} {
		t.Run(what, func(t *testing.T) {
			s := embedded.New(&embedded.Options{MaxKeys: maxKeys})
			e := limiter.New(s, &limiter.Options{StoreTimeout: time.Minute}) // the test may stand still for the default
			if err := e.SetPolicies([]policy.Policy{
				{Name: "few", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 3, Window: time.Hour}}},
				{Name: "many", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 1_000_000, Window: time.Hour}}},
			}); err != nil {
				t.Fatal(err)
			}
			refused := 0
			for i := range 2 * maxKeys {
				err := take(e, flood.policy, fmt.Sprint("flood-", i%flood.identifiers), fmt.Sprint("key-", i))
				switch {
				case errors.Is(err, store.ErrOverloaded):
					refused++
				case err != nil:
					t.Fatal(err)
				}
			}
			if (refused > 0) != flood.refused {
				t.Errorf("%d of %d calls were refused", refused, 2*maxKeys)
			}
			for i := range 10 {
				if err := take(e, "many", fmt.Sprint("another-", i), ""); err != nil {
					t.Errorf("another caller: %v", err)
				}
			}
			if err := take(e, "few", "another", "its-key"); err != nil && flood.identifiers == 1 {
				t.Errorf("another caller's idempotency key: %v", err)
			}
			if n := s.Len(); n > maxKeys/4+flood.identifiers+100 {
				t.Errorf("%d keys are kept, more than a quarter of %d", n, maxKeys)
			}
		})
	}
}
