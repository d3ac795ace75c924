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
)

// BenchmarkTakeOfManyCallers takes once from each of many keys, 64 at a time: a write and
// a read for each.
func BenchmarkTakeOfManyCallers(b *testing.B) {
	window := limiter.Limit{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}
	for name, policy := range map[string]limiter.Policy{
		"log":      {Limits: []limiter.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}},
		"counters": {Limits: []limiter.Limit{window}},
		"rows":     {Limits: []limiter.Limit{window}, Counting: limiter.CountingRows},
	} {
		b.Run(name, func(b *testing.B) { takeOfManyCallers(b, policy) })
	}
}

// BenchmarkTakeUnread is the same for a process that owns its keys: what it wrote itself
// is all there is, so that it reads nothing.
func BenchmarkTakeUnread(b *testing.B) {
	takeFrom(b, &ownedStore{Store: newStore(b, newConfig(b))}, limiter.Policy{
		Limits: []limiter.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}}, Counting: limiter.CountingRows,
	})
}

// ownedStore answers reads of running totals by what was written last.
type ownedStore struct {
	limiter.Store

	written sync.Map // of []limiter.Count, by limiter.Key
}

func (s *ownedStore) Write(ctx context.Context, w *limiter.Write) error {
	counts := make([]limiter.Count, len(w.Put))
	for i := range w.Put {
		counts[i] = w.Put[i].Count
	}
	s.written.Store(w.Key, counts)
	return s.Store.Write(ctx, w)
}

func (s *ownedStore) Read(_ context.Context, q *limiter.Query) (limiter.State, error) {
	counts, _ := s.written.LoadAndDelete(q.Key)
	return limiter.State{Counts: counts.([]limiter.Count)}, nil
}

func takeOfManyCallers(b *testing.B, policy limiter.Policy) {
	takeFrom(b, newStore(b, newConfig(b)), policy)
}

func takeFrom(b *testing.B, store limiter.Store, policy limiter.Policy) {
	e := limiter.New(store, &limiter.Options{
		Keyer: limiter.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second,
	})
	policy.Name = "p"
	if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("allowed %v: %v", d.Allowed, err)
			}
		}
	})
}

// BenchmarkTakeOfZipf takes from keys some of which are asked for often, 64 at a time.
func BenchmarkTakeOfZipf(b *testing.B) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: limiter.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second, Feed: embedded.New(nil),
	})
	if err := e.SetPolicies([]limiter.Policy{{
		Name: "p", Counting: limiter.CountingRows,
		Limits: []limiter.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}},
	}}); err != nil {
		b.Fatal(err)
	}
	running, stop := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = e.Run(running) })
	defer ended.Wait()
	defer stop()
	var remembered atomic.Int64
	const callers, s, keys = 64, 1.1, 100_000
	b.SetParallelism(callers)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), s, 1, keys-1)
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.FormatUint(zipf.Uint64(), 10))})
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
		limiter.Limit{Algorithm: "sliding-log", Limit: 10, Window: time.Hour})
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.ReportAllocs()
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("allowed %v: %v", d.Allowed, err)
			}
		}
	})
	e.Flush(b.Context())
}
