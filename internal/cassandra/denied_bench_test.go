package cassandra_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// BenchmarkDeniedCalls takes for callers who are over their limit of a sliding log, 32 at a
// time: by calls of one demand, of two, of which the other has room, and with an idempotency
// key, another one each time.
func BenchmarkDeniedCalls(b *testing.B) {
	for _, c := range []struct {
		name    string
		demands int
		key     bool
	}{{"one", 1, false}, {"two", 2, false}, {"key", 1, true}, {"two and key", 2, true}} {
		b.Run(c.name, func(b *testing.B) { denied(b, c.demands, c.key) })
	}
}

func denied(b *testing.B, demands int, key bool) {
	const callers = 32
	e := limiter.New(newStore(b, newConfig(b)), &limiter.Options{
		Keyer: keys.Keyer{Namespace: fmt.Sprint(b.Name(), time.Now())}, StoreTimeout: 5 * time.Second, Feed: embedded.New(nil),
	})
	log := policy.Limit{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}
	if err := e.SetPolicies([]policy.Policy{
		{Name: "full", Limits: []policy.Limit{log}}, {Name: "beside", Limits: []policy.Limit{log}},
	}); err != nil {
		b.Fatal(err)
	}
	running, stop := context.WithCancel(b.Context())
	var ended sync.WaitGroup
	ended.Go(func() { _ = e.Run(running) })
	defer ended.Wait()
	defer stop()
	call := func(i int64) limiter.Call {
		id := keys.Identifier(fmt.Sprint(i % callers))
		call := limiter.Call{Op: count.OpTake}
		for _, policy := range []string{"full", "beside"}[:demands] {
			call.Demands = append(call.Demands, limiter.Demand{Policy: policy, Identifier: id})
		}
		if key {
			call.IdempotencyKey = fmt.Sprint(i)
		}
		return call
	}
	for i := range int64(10 * callers) {
		if _, err := e.Record(b.Context(), call(i).Demands[0]); err != nil {
			b.Fatal(err)
		}
	}
	time.Sleep(11 * time.Second) // the counted units are no longer young
	var next atomic.Int64
	b.SetParallelism(callers / 2)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			c := call(next.Add(1))
			if answer, err := e.Do(b.Context(), &c); err != nil || answer.Allowed {
				b.Errorf("%+v, %v", answer, err)
				return
			}
		}
	})
}
