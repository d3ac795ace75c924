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
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: limiter.Keyer{Namespace: b.Name()}, StoreTimeout: 5 * time.Second,
	})
	if err := e.SetPolicies([]limiter.Policy{{
		Name: "sms-send", Limits: []limiter.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}},
	}}); err != nil {
		b.Fatal(err)
	}
	const callers = 64
	b.SetParallelism(callers) // for each processor
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			d, err := e.Take(b.Context(), limiter.Demand{Policy: "sms-send", Identifier: limiter.Identifier(fmt.Sprint(rand.Uint64()))})
			if err != nil || !d.Allowed {
				b.Fatalf("%+v, %v", d, err)
			}
		}
	})
}
