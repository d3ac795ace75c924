package inprocess

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// BenchmarkTake measures takes of a number of callers, each limited to ten an hour, so that all but their first ten are
// denied. ratelimitd keeps an exact log of them; go-limiter keeps a number for an interval.
func BenchmarkTake(b *testing.B) {
	for _, callers := range []int{1, 10_000, 1_000_000} {
		ids := make([]string, callers)
		for i := range ids {
			ids[i] = "+49151" + strconv.Itoa(10_000_000+i)
		}
		for name, take := range map[string]func(*testing.B) func(id string){"ratelimitd": ratelimitd, "go-limiter": goLimiter} {
			b.Run(fmt.Sprintf("callers=%d/%s", callers, name), func(b *testing.B) {
				take := take(b)
				var next atomic.Int64
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for i := int(next.Add(1)) * 7919; pb.Next(); i++ {
						take(ids[i%callers])
					}
				})
			})
		}
	}
}

func ratelimitd(b *testing.B) func(id string) {
	e := limiter.New(embedded.New(nil), nil)
	p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}}}
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		b.Fatal(err)
	}
	return func(id string) {
		if _, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(id)}); err != nil {
			b.Error(err)
		}
	}
}

func goLimiter(b *testing.B) func(id string) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 10, Interval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close(context.Background()) })
	return func(id string) {
		if _, _, _, _, err := store.Take(context.Background(), id); err != nil {
			b.Error(err)
		}
	}
}
