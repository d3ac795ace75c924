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

// BenchmarkLocalNewCallers measures what a take of a new caller costs an instance that decides
// in memory, and writes to a store that takes everything and keeps nothing.
func BenchmarkLocalNewCallers(b *testing.B) {
	e := limiter.New(blackHole{Store: embedded.New(nil)}, &limiter.Options{Local: embedded.New(nil)})
	p := inMemory("sliding-log", 10, time.Hour)
	if err := e.SetPolicies([]limiter.Policy{p}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx)
	}()
	b.ReportAllocs()
	var next atomic.Int64
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := limiter.Identifier("+49151" + strconv.FormatInt(10_000_000+next.Add(1), 10))
			if d, err := e.Take(context.Background(), limiter.Demand{Policy: p.Name, Identifier: id}); err != nil || !d.Allowed {
				b.Error(d, err)
			}
		}
	})
	cancel()
	<-ended
}

// blackHole takes every write, and keeps none.
type blackHole struct{ limiter.Store }

// Write does nothing.
func (blackHole) Write(context.Context, *limiter.Write) error { return nil }
