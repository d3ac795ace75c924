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
)

// BenchmarkLimitsOfAPolicy takes from keys that are all new, under policies of more and
// more limits, of one kind or of two.
func BenchmarkLimitsOfAPolicy(b *testing.B) {
	for _, algorithm := range []string{"sliding-log", "sliding-tail"} {
		for _, n := range []int{1, 2, 4, 8} {
			p := policy.Policy{}
			for i := range n {
				p.Limits = append(p.Limits, policy.Limit{
					Name: fmt.Sprint(i), Algorithm: algorithm, Limit: 10, Window: time.Duration(i+1) * time.Minute,
				})
				if algorithm != "sliding-log" {
					p.Counting = policy.CountingRows
				}
			}
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) { takeOfManyCallers(b, p) })
		}
	}
}

// BenchmarkEventsOfAKey checks keys whose log holds so many events: each check reads all.
func BenchmarkEventsOfAKey(b *testing.B) {
	for _, n := range []int64{1, 10, 100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { checkLogs(b, n) })
	}
}

func checkLogs(b *testing.B, events int64) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: keys.Keyer{Namespace: fmt.Sprint(b.Name(), time.Now())}, StoreTimeout: 5 * time.Second,
	})
	pol := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10_000, Window: time.Hour}}}
	if err := e.SetPolicies([]policy.Policy{pol}); err != nil {
		b.Fatal(err)
	}
	const all = 8
	demand := func(i int64) limiter.Demand {
		return limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(i % all))}
	}
	for i := range all * events {
		if _, err := e.Record(b.Context(), demand(i)); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.SetParallelism(all)
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := e.Check(b.Context(), demand(next.Add(1))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkLiveKeys takes from so many keys, each of which has counted before: a write and a
// read for each. Larger numbers take long to fill: choose by -bench.
func BenchmarkLiveKeys(b *testing.B) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{StoreTimeout: 10 * time.Second})
	p := policy.Policy{
		Name: "p", Counting: policy.CountingRows,
		Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: policy.MaxLimit, Window: time.Hour}},
	}
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		b.Fatal(err)
	}
	filled := 0
	for _, keys := range []int{1e3, 1e4, 1e5, 1e6, 1e7} {
		b.Run(fmt.Sprint(keys), func(b *testing.B) {
			takeOfKeys(b, e, keys-filled, func(i int) int { return filled + i })
			filled = keys
			b.ResetTimer()
			defer measureCPU(b)()
			takeOfKeys(b, e, b.N, func(int) int { return rand.IntN(keys) })
		})
	}
}

// takeOfKeys takes n times, 128 at a time, from the keys that key returns.
func takeOfKeys(b *testing.B, e *limiter.Engine, n int, key func(i int) int) {
	const callers = 128
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(key(i)))})
				if err != nil || !d.Allowed {
					b.Errorf("%+v, %v", d, err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkInstances takes from keys some of which are asked for often, through so many
// instances in turn, which have sessions of their own.
func BenchmarkInstances(b *testing.B) {
	for _, n := range []int{1, 2, 4} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { takeThroughInstances(b, n) })
	}
}

func takeThroughInstances(b *testing.B, n int) {
	running, stop := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	defer ended.Wait()
	defer stop()
	config, news, engines := newConfig(b), embedded.New(nil), make([]*limiter.Engine, n)
	for i := range engines {
		engines[i] = limiter.New(newStore(b, config), &limiter.Options{StoreTimeout: 10 * time.Second, Feed: news})
		if err := engines[i].SetPolicies([]policy.Policy{{
			Name: "p", Counting: policy.CountingRows,
			Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 1000, Window: time.Minute}},
		}}); err != nil {
			b.Fatal(err)
		}
		ended.Go(func() { _ = engines[i].Run(running) })
	}
	var known atomic.Int64
	const callers, s, all = 64, 1.1, 100_000
	b.SetParallelism(callers)
	b.ResetTimer()
	defer measureCPU(b)()
	b.RunParallel(func(p *testing.PB) {
		zipf := rand.NewZipf(rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), s, 1, all-1)
		for p.Next() {
			demand := limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.FormatUint(zipf.Uint64(), 10))}
			d, err := engines[rand.IntN(n)].Take(b.Context(), demand)
			if err != nil {
				b.Fatal(err)
			}
			if d.Remembered {
				known.Add(1)
			}
		}
	})
	b.ReportMetric(1-float64(known.Load())/float64(b.N), "asked/op")
}
