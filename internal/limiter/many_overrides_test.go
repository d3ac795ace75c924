package limiter_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A safe list as large as the page on sizing speaks of.
const (
	manyOverrides   = 10_000
	bytesAnOverride = 600 // at most, of an instance's memory
	prefixesOfTen   = 3
)

// safeList puts a safe list in force on e: names, and of ten three prefixes of names, in four lengths.
func safeList(tb testing.TB, e *limiter.Engine) {
	tb.Helper()
	allow := demand.Override{Kind: policy.OverrideAllow, Until: store.Distant, By: "operator"}
	for i := range manyOverrides {
		var err error
		if i%10 < prefixesOfTen {
			_, err = e.Overrides.SetPrefix(tb.Context(), "p", fmt.Sprintf("premium_%0*d_", 5+i%4, i), allow)
		} else {
			_, err = e.Overrides.Set(tb.Context(), "p", keys.Identifier(fmt.Sprintf("partner-%08d", i)), allow)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// knowing returns an engine that goes by feed and knows what it has.
func knowing(tb testing.TB, feed store.Feed) *limiter.Engine {
	tb.Helper()
	e := limiter.New(embedded.New(nil), &limiter.Options{Feed: feed})
	if err := errors.Join(e.SetPolicies([]policy.Policy{policyOf("fixed-window", 1e12, time.Hour)}), e.CatchUp(tb.Context())); err != nil {
		tb.Fatal(err)
	}
	return e
}

// heap returns the bytes in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestManyOverridesFit in as much memory as the page on sizing says, and all of them are known at the start.
func TestManyOverridesFit(t *testing.T) {
	feed := embedded.New(nil)
	safeList(t, knowing(t, feed))
	before, began := heap(), time.Now()
	e := knowing(t, feed)
	took, each := time.Since(began), (heap()-before)/manyOverrides
	if known := len(e.Overrides.All()); known != manyOverrides || each > bytesAnOverride {
		t.Errorf("%d overrides of %d bytes each, want %d of at most %d", known, each, manyOverrides, bytesAnOverride)
	}
	t.Logf("%d bytes each; known after %v", each, took)
	runtime.KeepAlive(e)
}

// BenchmarkTakeBesideOverrides takes for a name that has no override, beside none and beside a safe list, and for one of
// a prefix in it.
func BenchmarkTakeBesideOverrides(b *testing.B) {
	take := func(b *testing.B, e *limiter.Engine, d limiter.Demand) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Take(b.Context(), d); err != nil {
				b.Fatal(err)
			}
		}
	}
	none, many := knowing(b, embedded.New(nil)), knowing(b, embedded.New(nil))
	safeList(b, many)
	stranger := limiter.Demand{Policy: "p", Identifier: "customer-4711"}
	b.Run("none", func(b *testing.B) { take(b, none, stranger) })
	b.Run("stranger", func(b *testing.B) { take(b, many, stranger) })
	b.Run("prefix", func(b *testing.B) { take(b, many, limiter.Demand{Policy: "p", Identifier: "premium_00010_anna"}) })
}
