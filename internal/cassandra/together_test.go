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

// TestBatchesByTheGroupWindow checks that the rows of a batch, for each of which a node waits until a window has ended,
// don't wait for long.
func TestBatchesByTheGroupWindow(t *testing.T) {
	s := newStore(t, commonConfig(t))
	opened := s.GroupWindow()
	for window, want := range map[time.Duration]int{
		0: 10, 100 * time.Microsecond: 10, time.Millisecond: 10, 2 * time.Millisecond: 5, 3 * time.Millisecond: 3,
		10 * time.Millisecond: 1, 15 * time.Millisecond: 1, time.Second: 1,
	} {
		s.SetGroupWindow(window)
		if got := s.PerBatch(); got != want {
			t.Errorf("with a window of %v a batch has up to %d rows, want %d", window, got, want)
		}
	}
	if _, err := s.Caveats(t.Context()); err != nil {
		t.Fatal(err)
	}
	var text string
	if err := s.Ask(&text, "SELECT value FROM system_views.settings WHERE name = 'commitlog_sync_group_window'"); err != nil {
		t.Fatal(err)
	}
	window, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	if asked := s.GroupWindow(); opened != window || asked != window {
		t.Errorf("a window of %v when opened, and of %v when asked again; the node's is %v", opened, asked, window)
	}
}

// A failure of one key does not fail another.
func TestTripOfWhichOneFails(t *testing.T) {
	s := newStore(t, commonConfig(t))
	s.SetGroupWindow(0) // the three keys share a batch
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
