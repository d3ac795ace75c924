package cassandra_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// BenchmarkStartWithOverrides has an instance start that knows ten thousand overrides without end before its first
// decision, while their news live and when these are gone. It reports how many were made a second, by eight callers.
func BenchmarkStartWithOverrides(b *testing.B) {
	const overrides, callers = 10_000, 8
	config := newConfig(b)
	s := newStore(b, config)
	p := policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1, Window: time.Hour}}}
	anew := func() *limiter.Engine {
		e := limiter.New(s, &limiter.Options{Feed: s, StoreTimeout: config.Timeout})
		if err := errors.Join(e.SetPolicies([]policy.Policy{p}), e.CatchUp(b.Context())); err != nil {
			b.Fatal(err)
		}
		return e
	}
	e, began := anew(), time.Now()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := caller; i < overrides; i += callers {
				o := demand.Override{Kind: policy.OverrideAllow, Until: store.Distant, By: "operator"}
				if _, err := e.Overrides.Set(b.Context(), "p", keys.Identifier(fmt.Sprint(i)), o); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
	made := overrides / time.Since(began).Seconds()
	start := func(b *testing.B) {
		for b.Loop() {
			if known := len(anew().Overrides.All()); known != overrides {
				b.Fatalf("%d are known, want %d", known, overrides)
			}
		}
		b.ReportMetric(made, "made/s")
	}
	b.Run("with their news", start)
	if err := cassandratest.Session(b, config.Hosts...).Query("TRUNCATE " + config.Keyspace + ".changes").Exec(); err != nil {
		b.Fatal(err)
	}
	b.Run("without them", start)
}
