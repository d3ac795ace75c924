package limiter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// slots returns a policy of n units under way, which are held for a minute.
func slots(n int64, guarantee policy.Guarantee) policy.Policy {
	p := policyOf("concurrent", n, time.Minute)
	p.Guarantee = guarantee
	return p
}

// takeSlot takes a unit for somebody, and returns its release.
func takeSlot(t *testing.T, e *limiter.Engine) string {
	t.Helper()
	a := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
	if !a.Allowed {
		t.Fatalf("denied: %+v", a.Decision)
	}
	return a.Release
}

// TestOwnerReleasesInMemory holds that a unit that is released, on whatever instance, is free at once where its key is decided,
// without a read, and that the store has the same.
func TestOwnerReleasesInMemory(t *testing.T) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		bubble(t, string(guarantee), func(t *testing.T) {
			feed := embedded.New(nil)
			s, link := &fakeStore{Store: feed}, new(toOwner)
			opts, p := limiter.Options{Feed: feed, StoreTimeout: timeout}, slots(2, guarantee)
			owns := ownerOf(t, s, ownsAll(), opts, p)
			link.engine = owns
			asks := ownerOf(t, s, &owners{other: link}, opts, p)
			takeSlot(t, asks)
			time.Sleep(5 * time.Second) // what was read as the term began is read again
			first := takeSlot(t, owns)
			if d := mustTake(t, asks); d.Allowed || d.RetryAfter > time.Minute-5*time.Second {
				t.Fatalf("a third of two: %+v", d.Verdict)
			}
			reads, _ := s.counts()
			for range 5 {
				if mustTake(t, asks).Allowed {
					t.Fatal("a third of two is allowed")
				}
				must(t, asks.Refund(t.Context(), first))
				first = takeSlot(t, owns)
			}
			if now, _ := s.counts(); now != reads {
				t.Errorf("%d reads of a key that is known", now-reads)
			}
			must(t, owns.Refund(t.Context(), first))
			next := ownerOf(t, s, ownsAll(), opts, p) // which has nothing in memory
			owns.Flush(context.Background())
			if used := usedBy(t, next, somebody); used != 1 {
				t.Errorf("used %d by the store after all but one were released", used)
			}
		})
	}
}

// TestReleaseOfAFullLogIsReadAgain holds that an owner admits nothing by a release while older units are under way that it has
// not read: more were recorded than the limit.
func TestReleaseOfAFullLogIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := newFakeStore(), slots(2, policy.GuaranteeCounted)
		before := ownerOf(t, s, ownsAll(), limiter.Options{}, p)
		var releases []string
		for range 4 {
			releases = append(releases, mustDo(t, before, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}}).Release)
			time.Sleep(time.Second)
		}
		e := ownerOf(t, s, ownsAll(), limiter.Options{}, p)
		for left := 4; left > 0; left-- {
			if d := mustTake(t, e); d.Allowed != (left < 2) {
				t.Fatalf("beside %d of two that are under way: %+v", left, d.Verdict)
			}
			must(t, e.Refund(t.Context(), releases[left-1])) // the newest, which it has read
		}
	})
}

// TestReleaseElsewhereEndsADenial holds that without owners no instance denies from memory what another one may have released.
func TestReleaseElsewhereEndsADenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		e, other := toldEngine(t, s, slots(1, policy.GuaranteeCounted)), toldEngine(t, s, slots(1, policy.GuaranteeCounted))
		release := takeSlot(t, other)
		time.Sleep(5 * time.Second) // nobody takes it back any more
		deny(t, e)
		must(t, other.Refund(t.Context(), release))
		takeSlot(t, e)
	})
}
