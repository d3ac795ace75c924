package cassandra_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// BenchmarkLimitsOfAPolicy takes from keys that are all new, under policies of more and
// more limits, of one kind or of two.
func BenchmarkLimitsOfAPolicy(b *testing.B) {
	for _, algorithm := range []string{"sliding-log", "sliding-tail"} {
		for _, n := range []int{1, 2, 4, 8} {
			policy := limiter.Policy{}
			for i := range n {
				policy.Limits = append(policy.Limits, limiter.Limit{
					Name: fmt.Sprint(i), Algorithm: algorithm, Limit: 10, Window: time.Duration(i+1) * time.Minute,
				})
				if algorithm != "sliding-log" {
					policy.Counting = limiter.CountingRows
				}
			}
			b.Run(fmt.Sprintf("%s/%d", algorithm, n), func(b *testing.B) { takeOfManyCallers(b, policy) })
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
		Keyer: limiter.Keyer{Namespace: fmt.Sprint(b.Name(), time.Now())}, StoreTimeout: 5 * time.Second,
	})
	policy := limiter.Policy{Name: "p", Limits: []limiter.Limit{{Algorithm: "sliding-log", Limit: 10_000, Window: time.Hour}}}
	if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
		b.Fatal(err)
	}
	const keys = 8
	demand := func(i int64) limiter.Demand {
		return limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(i % keys))}
	}
	for i := range keys * events {
		if _, err := e.Record(b.Context(), demand(i)); err != nil {
			b.Fatal(err)
		}
	}
	var next atomic.Int64
	b.SetParallelism(keys)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := e.Check(b.Context(), demand(next.Add(1))); err != nil {
				b.Fatal(err)
			}
		}
	})
}
