package cassandra_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// sole is the term of an owner of all keys, and knows the keys that something was counted for
// since it began.
type sole struct {
	mu    sync.Mutex
	knows bool // of all that was counted before, that it was nothing
	noted map[store.Key]bool
}

func (*sole) Owned() bool                  { return true }
func (*sole) Began() time.Time             { return time.Time{} }
func (*sole) Verified() time.Time          { return time.Now() }
func (*sole) Verify(context.Context) error { return nil }
func (*sole) Leave()                       {}

func (s *sole) IsNew(key store.Key, _ time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.knows && !s.noted[key]
}

func (s *sole) Note(key store.Key, _ time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted == nil {
		s.noted = make(map[store.Key]bool)
	}
	s.noted[key] = true
	return nil
}

func (s *sole) Place(context.Context, store.Key) (demand.Place, error) {
	return demand.Place{Term: s}, nil
}

func (s *sole) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) { return s, nil }

// localOwner returns an engine that owns all keys, and decides by one policy under guarantee local.
func localOwner(t testing.TB, store store.Store, namespace string, term *sole, limit policy.Limit) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{
		Keyer: keys.Keyer{Namespace: namespace}, StoreTimeout: 5 * time.Second, Owners: term,
	})
	p := policy.Policy{Name: "p", Guarantee: policy.GuaranteeLocal, Limits: []policy.Limit{limit}}
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// TestLocalIsKnownToTheNextOwner checks that units that an owner wrote behind count for the next one.
func TestLocalIsKnownToTheNextOwner(t *testing.T) {
	store := newStore(t, commonConfig(t))
	for _, algorithm := range policy.Algorithms() {
		if algorithm == policy.Conversion.Name {
			continue // it is not written behind
		}
		t.Run(algorithm, func(t *testing.T) {
			t.Parallel()
			namespace, limit, total := rand.Text(), policy.Limit{Algorithm: algorithm, Limit: 200, Window: 24 * time.Hour}, 0
			for i, takes := range []int{150, 150} {
				e := localOwner(t, store, namespace, &sole{knows: i == 0}, limit)
				for range takes {
					d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "id"})
					if err != nil {
						t.Fatal(err)
					}
					if d.Allowed {
						total++
					}
				}
				e.Flush(t.Context())
				time.Sleep(2 * demand.DefaultStoreTimeout)
			}
			if total != 200 {
				t.Errorf("%d are admitted, limit 200", total)
			}
		})
	}
}

// Units that were admitted for many keys travel together when they are written.
func TestLocalKeysTravelTogether(t *testing.T) {
	const all = 2000
	for _, algorithm := range []string{"sliding-log", "sliding-tail"} {
		t.Run(algorithm, func(t *testing.T) {
			store := newStore(t, commonConfig(t))
			var trips, travelled atomic.Int64
			store.WatchTrips(func(n int) { trips.Add(1); travelled.Add(int64(n)) })
			e := localOwner(t, store, rand.Text(), &sole{knows: true}, policy.Limit{Algorithm: algorithm, Limit: 10, Window: time.Hour})
			for i := range all {
				if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(i))}); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			eventually(t, "all are written", func() bool { return e.Behind().Waiting == 0 })
			t.Logf("%d keys in %v, of which %d in %d trips", all, time.Since(began), travelled.Load(), trips.Load())
			if travelled.Load() < 2*trips.Load() || e.Behind().Written != all {
				t.Errorf("%d keys in %d trips: want at least two in each; %d are written", travelled.Load(), trips.Load(), e.Behind().Written)
			}
		})
	}
}
