package cassandra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// taker asks for one unit of key i and reports whether it may pass.
type taker func(ctx context.Context, i int) (bool, error)

const (
	sharedWriters = 16 // processes' worth: each with a session, an engine and a node id of its own
	sharedKeys    = 8
	sharedLimit   = 5
	sharedTakes   = 10 // of each writer from each key
)

// testSixteenProcesses has them take from the same keys at the same time, at QUORUM; and
// shows that the test can fail: writers that read first and write then let more through.
func testSixteenProcesses(t *testing.T, config cassandra.Config) {
	config.Timeout = 10 * time.Second
	stores := make([]*cassandra.Store, sharedWriters)
	for i := range stores {
		stores[i] = openStore(t, config)
	}
	for _, algorithm := range policy.Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			admitted := contend(t, func(i int) taker { return countedTaker(t, stores[i], algorithm) })
			used := 0
			for key, n := range admitted {
				if n > sharedLimit {
					t.Errorf("key %d: %d of %d admitted", key, n, sharedLimit)
				}
				used += int(n)
			}
			t.Logf("%d of %d units used", used, sharedKeys*sharedLimit)
			if used == 0 {
				t.Error("nobody was admitted")
			}
		})
	}
	t.Run("reading first and writing then", func(t *testing.T) {
		worst := int64(0)
		for _, n := range contend(t, func(i int) taker { return carelessTaker(stores[i]) }) {
			worst = max(worst, n)
		}
		if worst <= sharedLimit {
			t.Errorf("at most %d of %d admitted: this test would not notice an engine that reads first", worst, sharedLimit)
		}
		t.Logf("up to %d of %d admitted", worst, sharedLimit)
	})
}

// contend returns how many units of each key were admitted.
func contend(t *testing.T, newTaker func(i int) taker) [sharedKeys]int64 {
	t.Helper()
	var admitted [sharedKeys]atomic.Int64
	var all sync.WaitGroup
	for i := range sharedWriters {
		take := newTaker(i)
		all.Go(func() {
			for range sharedTakes {
				for _, key := range rand.Perm(sharedKeys) {
					ok, err := take(t.Context(), key)
					if err != nil {
						t.Error(err)
					} else if ok {
						admitted[key].Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	var counts [sharedKeys]int64
	for i := range counts {
		counts[i] = admitted[i].Load()
	}
	return counts
}

func countedTaker(t *testing.T, store *cassandra.Store, algorithm string) taker {
	t.Helper()
	e := limiter.New(store, &limiter.Options{
		Keyer:       keys.Keyer{Namespace: t.Name()},
		Consistency: policy.Consistency{Write: policy.LevelQuorum, Read: policy.LevelQuorum},
		// The tests' processes share one clock. The window is a day, so that no edge of a
		// fixed one falls into the test but once a day.
		StoreTimeout: 10 * time.Second,
	})
	p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: algorithm, Limit: sharedLimit, Window: 24 * time.Hour}}}
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	return func(ctx context.Context, i int) (bool, error) {
		d, err := e.Take(ctx, limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint("key ", i))})
		return d.Allowed, err
	}
}

// carelessTaker counts the events, and adds its own if there is room.
func carelessTaker(s *cassandra.Store) taker {
	ids := store.NewEventIDs().Next
	keyer := keys.Keyer{Namespace: "careless"}
	return func(ctx context.Context, i int) (bool, error) {
		key := keyer.For(keys.KeySpace{Policy: "p"}).Of(keys.Identifier(fmt.Sprint("key ", i)))
		now := store.InstantOf(time.Now())
		state, err := s.Read(ctx, &store.Query{
			Key: key, Level: policy.LevelQuorum,
			Logs: []store.LogQuery{{Span: store.SpanDay, After: now.Add(-24 * time.Hour), Max: sharedLimit}},
		})
		if err != nil || len(state.Logs[0].Events) >= sharedLimit {
			return false, err
		}
		return true, s.Write(ctx, &store.Write{
			Key: key, Level: policy.LevelQuorum,
			Events: []store.Event{{ID: ids(now), At: now, Cost: 1}},
			Logs:   []store.LogWrite{{Span: store.SpanDay, TTL: 25 * time.Hour, Keep: sharedLimit}},
		})
	}
}
