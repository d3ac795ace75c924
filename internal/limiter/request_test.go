package limiter_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// askedOf returns a policy of one limit, 1 by default and up to 9 by request, in an hour.
func askedOf(algorithm string) policy.Policy {
	p := policyOf(algorithm, 1, time.Hour)
	p.Limits[0].Max = 9
	return p
}

// takeOf takes a unit for somebody, who has this limit.
func takeOf(t testing.TB, e *limiter.Engine, limit int64) count.Decision {
	t.Helper()
	d := somebody
	d.Limit = limit
	got, err := e.Take(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if l := got.Limits()[0].Limit; l.Limit != max(1, limit) {
		t.Errorf("limit %d is decided by %+v", limit, l)
	}
	return got
}

// takeUpTo takes until a take of this limit is denied, twice, and holds that this is at the limit.
func takeUpTo(t testing.TB, e *limiter.Engine, limit int64) {
	t.Helper()
	for denied := 0; denied < 2; {
		d := takeOf(t, e, limit)
		if d.Allowed != (d.Used <= limit && denied == 0 && d.Recorded == count.RecordedYes) {
			t.Fatalf("limit %d: %+v", limit, d.Verdict)
		}
		if !d.Allowed {
			if denied++; d.Used != limit {
				t.Fatalf("limit %d is denied at %d used", limit, d.Used)
			}
		}
	}
}

// wantByLimit holds that the denials which e remembers of a key are those of the limit that a call has: of 3, and of 5 then.
func wantByLimit(t testing.TB, e *limiter.Engine) {
	t.Helper()
	takeUpTo(t, e, 3)
	time.Sleep(100 * time.Millisecond)
	takeUpTo(t, e, 5)
	for _, limit := range []int64{3, 0, 5, 4, 3, 5} {
		if d := takeOf(t, e, limit); d.Allowed || d.Used != 5 {
			t.Errorf("limit %d: %+v", limit, d)
		}
	}
	if d := takeOf(t, e, 6); !d.Allowed || d.Remaining != 0 {
		t.Errorf("limit 6: %+v", d.Verdict)
	}
}

// TestOwnerTellsDenialsByLimit checks that an instance that asks an owner uses only its answers about the same limit.
func TestOwnerTellsDenialsByLimit(t *testing.T) {
	for _, algorithm := range remembered() {
		synctest.Test(t, func(t *testing.T) {
			asks, _, link := askerOf(t, askedOf(algorithm))
			wantByLimit(t, asks)
			takeUpTo(t, asks, 7)
			asked := link.asked.Load()
			for range 5 {
				takeOf(t, asks, 7)
			}
			if n := link.asked.Load() - asked; n > 0 {
				t.Errorf("%s: the owner was asked %d times of a limit that it denied", algorithm, n)
			}
		})
	}
}

// TestOwnerKnowsAKeyUnderAllLimits holds that an owner decides by one memory of a key, whatever limits calls have: it reads
// the key once.
func TestOwnerKnowsAKeyUnderAllLimits(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
			bubble(t, algorithm+", "+string(guarantee), func(t *testing.T) {
				s, p := newFakeStore(), askedOf(algorithm)
				p.Guarantee = guarantee
				e := ownerOf(t, s, ownsAll(), limiter.Options{}, p)
				takeOf(t, e, 9)
				time.Sleep(5 * time.Second) // what was read as the term began is read again
				takeOf(t, e, 9)
				reads, _ := s.counts()
				for _, limit := range []int64{2, 4, 3, 0, 4, 9} {
					takeOf(t, e, limit)
				}
				if now, _ := s.counts(); now != reads {
					t.Errorf("%d reads of a key that is known", now-reads)
				}
				if d := takeOf(t, e, 5); d.Allowed || d.Used != 5 {
					t.Errorf("limit 5: %+v", d.Verdict)
				}
			})
		}
	}
}

// TestDenialsAreRememberedByLimit holds that without owners an instance denies from memory what has no room under its own
// limit, and asks the store for all else.
func TestDenialsAreRememberedByLimit(t *testing.T) {
	for _, algorithm := range remembered() {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			e := toldEngine(t, s, askedOf(algorithm))
			wantByLimit(t, e)
			time.Sleep(2 * time.Second)
			takeUpTo(t, e, 6)
			reads, writes := s.counts()
			for _, limit := range []int64{2, 6, 0, 5} {
				if d := takeOf(t, e, limit); d.Allowed || !d.Remembered {
					t.Errorf("limit %d: %+v", limit, d)
				}
			}
			if r, w := s.counts(); r != reads || w != writes {
				t.Errorf("%d reads and %d writes for what has no room", r-reads, w-writes)
			}
			if d := takeOf(t, e, 7); !d.Allowed {
				t.Errorf("limit 7: %+v", d.Verdict)
			}
		})
	}
}

// TestKnownFullByLimit holds that while the store does not answer an instance denies a key that has no room under the limit
// of a call, and decides others by its own counts.
func TestKnownFullByLimit(t *testing.T) {
	for _, algorithm := range remembered() {
		bubble(t, algorithm, func(t *testing.T) {
			p := askedOf(algorithm)
			p.OnStoreError = policy.OnStoreErrorLocal
			s, feed := newFakeStore(), newFakeFeed()
			e, other := instance(t, s, feed, p), instance(t, s, feed, p)
			for range 3 {
				takeOf(t, other, 3)
			}
			if takeOf(t, e, 3).Allowed {
				t.Fatal("a fourth unit of three is allowed")
			}
			outage(s)
			for _, limit := range []int64{3, 2, 0} {
				if d := takeOf(t, e, limit); d.Allowed || d.Used < 3 {
					t.Errorf("limit %d without the store: %+v", limit, d)
				}
			}
			for _, want := range []bool{true, true, true, true, false} { // of this instance's own counts, which have none
				if d := takeOf(t, e, 4); d.Allowed != want || !d.Degraded {
					t.Errorf("limit 4 without the store: %+v", d)
				}
			}
		})
	}
}

// TestBlockHoldsForAllLimits holds that a block is its identifier's, whatever limit a call has.
func TestBlockHoldsForAllLimits(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		p := askedOf("sliding-log")
		p.BlockFor = time.Minute
		e := instance(t, newFakeStore(), newFakeFeed(), p)
		takeOf(t, e, 1)
		takeOf(t, e, 1)
		if d := takeOf(t, e, 9); d.Allowed || !d.Blocked {
			t.Errorf("%+v", d)
		}
	})
}

// TestSeveralDemandsByLimit holds that calls of several demands, which owners prepare, go by the limit of each.
func TestSeveralDemandsByLimit(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		synctest.Test(t, func(t *testing.T) {
			asks, _, _ := askerOf(t, askedOf(algorithm))
			take := func(mine, theirs int64) (allowed bool) {
				a := mustDo(t, asks, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
					{Policy: "p", Identifier: "mine", Limit: mine}, {Policy: "p", Identifier: "theirs", Limit: theirs},
				}})
				for i, limit := range []int64{mine, theirs} {
					if got := a.Demands[i].Limits()[0].Limit.Limit; got != limit {
						t.Errorf("%s: demand %d has the limit %d, want %d", algorithm, i, got, limit)
					}
				}
				return a.Allowed
			}
			for i, step := range []struct {
				mine, theirs int64
				allowed      bool
			}{{2, 1, true}, {2, 1, false}, {2, 3, true}, {2, 3, false}, {3, 3, true}, {9, 3, false}, {9, 4, true}, {3, 9, false}} {
				if got := take(step.mine, step.theirs); got != step.allowed {
					t.Fatalf("%s: step %d, %+v: allowed %v", algorithm, i, step, got)
				}
			}
			var wrong *limiter.DemandError
			var field *limiter.FieldError
			_, err := asks.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
				{Policy: "p", Identifier: "mine"}, {Policy: "p", Identifier: "theirs", Limit: 10},
			}})
			if errors.As(err, &wrong) || !errors.As(err, &field) || field.Field != "demands[1].limit" {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestOwnerTakesLimitsThatItsOwnPolicyDoesNotTake holds that an owner decides by the limits that the asker's policy takes.
func TestOwnerTakesLimitsThatItsOwnPolicyDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asks, owns, link := askerOf(t, askedOf("sliding-log"))
		smaller := askedOf("sliding-log")
		smaller.Limits[0].Max = 4
		must(t, owns.SetPolicies([]policy.Policy{smaller}))
		if d := takeOf(t, asks, 9); !d.Allowed || link.asked.Load() == 0 {
			t.Errorf("%+v, and the owner was asked %d times", d.Verdict, link.asked.Load())
		}
		if d := takeOf(t, owns, 2); !d.Allowed || d.Used != 2 {
			t.Errorf("the owner does not know what it counted for the asker: %+v", d.Verdict)
		}
	})
}

// TestCallsAtTheSameTimeHaveTheirLimits holds that calls for one key, which wait for each other, are decided by their own limits.
func TestCallsAtTheSameTimeHaveTheirLimits(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		for name, o := range map[string]demand.Owners{"owned": ownsAll(), "shared": nil} {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				s := newFakeStore()
				e := ownerOf(t, s, o, limiter.Options{}, askedOf(algorithm))
				s.set(func() { s.writeTakes = 20 * time.Millisecond })
				var all sync.WaitGroup
				for _, limit := range []int64{9, 2, 9, 0, 3, 2, 9} {
					all.Go(func() { takeOf(t, e, limit) })
					synctest.Wait()
				}
				all.Wait()
			})
		}
	}
}

// overreaching hands calls on with a limit that no policy takes.
type overreaching struct {
	toOwner
	limit int64
	err   error
}

func (o *overreaching) Decide(ctx context.Context, c *demand.Charge) error {
	if c.Op == count.OpTake {
		other := *c.Definition
		other.Limit = o.limit
		c.Definition = &other
	}
	o.err = errors.Join(o.err, o.toOwner.Decide(ctx, c))
	return o.err
}

// TestPeersBringNoOtherLimits holds that an owner refuses a call with a limit that its policy does not take.
func TestPeersBringNoOtherLimits(t *testing.T) {
	for p, limit := range map[*policy.Policy]int64{ptr(askedOf("sliding-log")): 10, ptr(askedOf("fixed-window")): -1, ptr(logOf(3)): 1} {
		synctest.Test(t, func(t *testing.T) {
			s, link := newFakeStore(), &overreaching{limit: limit}
			link.engine = ownerOf(t, s, ownsAll(), limiter.Options{}, *p)
			asks := ownerOf(t, s, &owners{other: link}, limiter.Options{}, *p)
			_, _ = asks.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: "id"})
			if !errors.Is(link.err, owner.ErrRefused) {
				t.Errorf("%s with limit %d: %v", p.Name, limit, link.err)
			}
		})
	}
}

func ptr(p policy.Policy) *policy.Policy { return &p }

// TestManyLimits holds that however many limits calls bring, all count together, and the memory of them has an end.
func TestManyLimits(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		p := policyOf("fixed-window", 1, time.Hour)
		p.Limits[0].Max = 10_000
		e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, p)
		for limit := int64(1); limit <= 5000; limit++ {
			if d := takeOf(t, e, limit); !d.Allowed || d.Used != limit {
				t.Fatalf("limit %d: %+v", limit, d.Verdict)
			}
		}
	})
}
