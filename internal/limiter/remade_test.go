package limiter_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Units that were counted in buckets of another width are not given back: they would be
// taken out of one that they are not in, and count less than nothing there.
func TestRefundAfterBucketsHaveChanged(t *testing.T) {
	const limit = 10
	for name, store := range map[string]func() store.Store{
		"still":  func() store.Store { return embedded.New(nil) },
		"shared": func() store.Store { return newFakeStore() },
	} {
		bubble(t, name, func(t *testing.T) {
			p := policyOf("sliding-window", limit, time.Minute)
			p.Limits[0].Name, p.Limits[0].Buckets = "all", 5
			e := newEngine(t, store(), 0, p)
			running(t, e)
			time.Sleep(8 * time.Second)
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: "a", Cost: limit / 2}}}
			mustDo(t, e, call)
			receipt := mustDo(t, e, call).Receipt
			p.Limits[0].Buckets = 10
			must(t, e.SetPolicies([]policy.Policy{p}))
			time.Sleep(2 * time.Second)
			_ = e.Refund(t.Context(), receipt) // it may say that there is nothing to give back
			admitted := 0
			for range 108 {
				time.Sleep(time.Second / 2)
				if d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "a"}); err == nil && d.Allowed {
					admitted++
				}
			}
			if admitted > limit {
				t.Errorf("%d within less than a minute", admitted)
			}
		})
	}
}

// A subtraction that begins while a decision reads under another hash key is not taken off twice:
// once from what was read, and once as this process's total is lower by then.
func TestSubtractionWhileAnotherKeyIsRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := limiter.New(s, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Keyer: secretOf("1"), AlsoRead: []keys.Keyer{secretOf("2")},
		})
		must(t, e.SetPolicies([]policy.Policy{inRows("sliding-tail", 1000, time.Hour)}))
		running(t, e)
		demand := limiter.Demand{Policy: "p", Identifier: "a", Cost: 100}
		mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{demand}})
		demand.Cost = 20
		receipt := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{demand}}).Receipt
		must(t, e.Refund(t.Context(), receipt))
		time.Sleep(timeout - 50*time.Millisecond)
		_, before := s.counts()
		between := 0
		s.set(func() {
			reads := 0
			s.beforeRead = func(*store.Query) {
				if reads++; reads == 4 { // under the other hash key, after the first one was written to and read
					_, from := s.counts()
					time.Sleep(timeout - 100*time.Millisecond)
					_, to := s.counts()
					between = to - from
				}
			}
		})
		demand.Cost = 600
		d, err := e.Take(t.Context(), demand)
		if _, writes := s.counts(); err != nil || between != 1 || writes == before {
			t.Fatalf("%v, %d subtractions meanwhile", err, between)
		}
		if !d.Allowed || d.Used < 700 {
			t.Errorf("%d used after 700 were taken: %+v", d.Used, d)
		}
	})
}

// A call right after a reset has to wait for no longer than its window, in the same millisecond
// or not.
func TestNothingLastsLongerAfterAReset(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		e := limiter.New(embedded.New(nil), nil)
		must(t, e.SetPolicies([]policy.Policy{policyOf(algorithm, 1, time.Hour)}))
		for range 20 {
			must(t, e.Reset(t.Context(), somebody.Policy, somebody.Identifier))
			most := time.Hour
			if algorithm == "sliding-tail" {
				most = 2 * time.Hour // its unit fades in the next window
			}
			if d := mustTake(t, e); !d.Allowed || d.ResetAfter > most {
				t.Fatalf("%s: %+v after a reset", algorithm, d)
			}
		}
	}
}

// A limit that lets a call pass tells of no wait, though another denies the call and it counts
// all the same: the call's own wait is for both.
func TestWaitsWhereDeniedAttemptsCount(t *testing.T) {
	for name, store := range map[string]func() store.Store{
		"still":  func() store.Store { return embedded.New(nil) },
		"shared": func() store.Store { return newFakeStore() },
	} {
		bubble(t, name, func(t *testing.T) {
			p := policyOf("sliding-log", 2, time.Hour)
			p.Limits = append(p.Limits, policy.Limit{Algorithm: "sliding-log", Limit: 1, Window: time.Minute})
			p.Count = policy.CountAll
			e := newEngine(t, store(), 0, p)
			mustTake(t, e)
			time.Sleep(time.Second)
			d := mustTake(t, e)
			hour, minute := d.Limits()[0].Verdict, d.Limits()[1].Verdict
			if d.Allowed || !hour.Allowed || hour.RetryAfter != 0 || hour.Used != 2 || minute.Allowed {
				t.Errorf("%+v and %+v", hour, minute)
			}
			if wait := time.Hour - time.Second; d.RetryAfter < wait || d.RetryAfter > wait+2*tolerance {
				t.Errorf("%v until the next, want %v", d.RetryAfter, wait)
			}
		})
	}
}

func TestProblemsOfBucketsAndLevels(t *testing.T) {
	window := policyOf("sliding-window", 5, 1005*time.Millisecond)
	prime := policyOf("sliding-window", 5, 1009*time.Millisecond)
	serial := policyOf("sliding-log", 5, time.Minute)
	serial.Guarantee = "serial"
	for want, p := range map[string]policy.Policy{
		"a window of 1.005s into whole milliseconds: use a number that does, such as 5":            window,
		"no number from 2 to 100 does, use another window":                                         prime,
		"guarantee: serial is gone, since owners deny nobody while there is room: delete the line": serial,
	} {
		if found := p.Problems(); len(found) != 1 || !strings.Contains(found[0].Error(), want) {
			t.Errorf("%v, want %q", found, want)
		}
	}
}
