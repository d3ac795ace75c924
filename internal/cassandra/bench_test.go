package cassandra_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

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

func takeOfManyCallers(b *testing.B, policy limiter.Policy) {
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: limiter.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second,
	})
	policy.Name = "p"
	if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("%+v, %v", d, err)
			}
		}
	})
}
