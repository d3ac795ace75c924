package cassandra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// BenchmarkTakeOfManyCallers takes once from each of many keys, 64 at a time: a write and
// a read for each.
func BenchmarkTakeOfManyCallers(b *testing.B) {
	window := policy.Limit{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}
	for name, policy := range map[string]policy.Policy{
		"log":      {Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}},
		"counters": {Limits: []policy.Limit{window}},
		"rows":     {Limits: []policy.Limit{window}, Counting: policy.CountingRows},
	} {
		b.Run(name, func(b *testing.B) { takeOfManyCallers(b, policy) })
	}
}

// BenchmarkTakeUnread is the same for a process that owns its keys: what it wrote itself
// is all there is, so that it reads nothing.
func BenchmarkTakeUnread(b *testing.B) {
	takeFrom(b, &ownedStore{Store: newStore(b, newConfig(b))}, policy.Policy{
		Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}}, Counting: policy.CountingRows,
	})
}

// ownedStore answers reads of running totals by what was written last.
type ownedStore struct {
	store.Store

	written sync.Map // of []store.Count, by store.Key
}

func (s *ownedStore) Write(ctx context.Context, w *store.Write) error {
	counts := make([]store.Count, len(w.Put))
	for i := range w.Put {
		counts[i] = w.Put[i].Count
	}
	s.written.Store(w.Key, counts)
	return s.Store.Write(ctx, w)
}

func (s *ownedStore) Read(_ context.Context, q *store.Query) (store.State, error) {
	counts, _ := s.written.LoadAndDelete(q.Key)
	return store.State{Counts: counts.([]store.Count)}, nil
}

func (s *ownedStore) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s *ownedStore) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

func takeOfManyCallers(b *testing.B, policy policy.Policy) {
	takeFrom(b, newStore(b, newConfig(b)), policy)
}

func takeFrom(b *testing.B, store store.Store, pol policy.Policy) {
	e := limiter.New(store, &limiter.Options{
		Keyer: keys.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second,
	})
	pol.Name = "p"
	if err := e.SetPolicies([]policy.Policy{pol}); err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("allowed %v: %v", d.Allowed, err)
			}
		}
	})
}

// BenchmarkTakeOfZipf takes from keys some of which are asked for often, 64 at a time.
func BenchmarkTakeOfZipf(b *testing.B) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: keys.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second, Feed: embedded.New(nil),
	})
	if err := e.SetPolicies([]policy.Policy{{
		Name: "p", Counting: policy.CountingRows,
		Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}},
	}}); err != nil {
		b.Fatal(err)
	}
	running, stop := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = e.Run(running) })
	defer ended.Wait()
	defer stop()
	var remembered atomic.Int64
	const callers, s, all = 64, 1.1, 100_000
	b.SetParallelism(callers)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), s, 1, all-1)
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.FormatUint(zipf.Uint64(), 10))})
			if err != nil {
				b.Fatal(err)
			}
			if d.Remembered {
				remembered.Add(1)
			}
		}
	})
	b.ReportMetric(float64(remembered.Load())/float64(b.N), "remembered/op")
}

// BenchmarkLocalNewCallers takes from new callers of an owner that knows them to be new, whose takes are written
// behind.
func BenchmarkLocalNewCallers(b *testing.B) {
	e := localOwner(b, newStore(b, newConfig(b)), b.Name(), &sole{knows: true},
		policy.Limit{Algorithm: "sliding-log", Limit: 10, Window: time.Hour})
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.ReportAllocs()
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("allowed %v: %v", d.Allowed, err)
			}
		}
	})
	e.Flush(b.Context())
}
