package cassandra_test

import (
	"crypto/rand"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// Many callers of many keys at the same time share requests, and each is told of its own
// key.
func TestKeysTravelTogether(t *testing.T) {
	store := newStore(t, commonConfig(t))
	var trips, ks atomic.Int64
	store.WatchTrips(func(n int) { trips.Add(1); ks.Add(int64(n)) })
	const callers, limit = 60, 3
	e := storetest.NewEngine(t, store, limiter.Options{Now: time.Now, StoreTimeout: 5 * time.Second}, policy.Policy{
		Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: limit, Window: time.Hour}},
	})
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			demand := limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(caller))}
			for n := range int64(limit + 1) {
				d, err := e.Take(t.Context(), demand)
				if want := min(n+1, limit); err != nil || d.Used != want || d.Allowed != (n < limit) {
					t.Errorf("caller %d, take %d: used %d, allowed %v, %v", caller, n+1, d.Used, d.Allowed, err)
				}
			}
		})
	}
	all.Wait()
	if trips.Load() == 0 || ks.Load() < 2*trips.Load() {
		t.Errorf("%d keys in %d trips: want at least two in each", ks.Load(), trips.Load())
	}
}

// A failure of one key does not fail another.
func TestTripOfWhichOneFails(t *testing.T) {
	s := newStore(t, commonConfig(t))
	id := store.NewEventIDs().Next(store.InstantOf(time.Now()))
	tooLong := make([]byte, math.MaxUint16+1) // Cassandra refuses keys that don't fit
	keys := [][]byte{[]byte(rand.Text()), tooLong, []byte(rand.Text())}
	found, wrote, read := s.Together(keys, store.Event{ID: id, At: id.Instant(), Cost: 1})
	for i := range keys {
		if bad := i == 1; (wrote[i] != nil) != bad || (read[i] != nil) != bad || (found[i] == 1) == bad {
			t.Errorf("key %d: written: %v; %d found: %v", i, wrote[i], found[i], read[i])
		}
	}
}
