package limiter_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// BenchmarkAlgorithm measures one judgement by the pure functions, of a key at
// nine of its ten units.
func BenchmarkAlgorithm(b *testing.B) {
	for _, name := range limiter.Algorithms() {
		b.Run(name, func(b *testing.B) {
			m := limiter.NewMachine(policyOf(name, 10, time.Hour))
			m.Do(limiter.OpRecord, someMorning, 1)
			for range 8 {
				m.Do(limiter.OpRecord, someMorning+1, 1)
			}
			b.ReportAllocs()
			for b.Loop() {
				m.Do(limiter.OpCheck, someMorning+2, 1)
			}
		})
	}
}

// BenchmarkEmbeddedTake measures a take in process: hash, lock, judge, store. Keys
// are those of ten thousand callers, or one.
func BenchmarkEmbeddedTake(b *testing.B) {
	for _, name := range limiter.Algorithms() {
		for _, callers := range []int{1, 10_000} {
			b.Run(name+"/callers="+strconv.Itoa(callers), func(b *testing.B) {
				e := limiter.New(embedded.New(nil), nil)
				if err := e.SetPolicies([]limiter.Policy{policyOf(name, 10, time.Hour)}); err != nil {
					b.Fatal(err)
				}
				demands := make([]limiter.Demand, callers)
				for i := range demands {
					demands[i] = limiter.Demand{Policy: "p", Identifier: limiter.Identifier("+49151" + strconv.Itoa(10_000_000+i))}
				}
				b.ReportAllocs()
				var next atomic.Int64
				b.RunParallel(func(pb *testing.PB) {
					for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
						if _, err := e.Take(context.Background(), demands[i%callers]); err != nil {
							b.Fatal(err)
						}
					}
				})
			})
		}
	}
}

// BenchmarkLocalTake measures a take that is decided in memory and written behind, to a
// store that is in memory as well, by ten thousand callers within their limit.
func BenchmarkLocalTake(b *testing.B) {
	for _, name := range limiter.Algorithms() {
		b.Run(name, func(b *testing.B) {
			e := limiter.New(struct{ limiter.Store }{embedded.New(nil)}, &limiter.Options{Local: embedded.New(nil)})
			if err := e.SetPolicies([]limiter.Policy{inMemory(name, limiter.MaxLogLimit, time.Hour)}); err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = e.Run(ctx) }()
			b.ReportAllocs()
			var next atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
					id := limiter.Identifier("+49151" + strconv.Itoa(10_000_000+i%10_000))
					if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: id}); err != nil {
						b.Fatal(err)
					}
				}
			})
			cancel()
			<-done
		})
	}
}

// BenchmarkEmbeddedNewKeys measures takes of callers never seen before.
func BenchmarkEmbeddedNewKeys(b *testing.B) {
	e := limiter.New(embedded.New(&embedded.Options{MaxKeys: 1 << 30}), nil)
	if err := e.SetPolicies([]limiter.Policy{policyOf("sliding-log", 10, time.Hour)}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(strconv.Itoa(i))}); err != nil {
			b.Fatal(err)
		}
	}
}
