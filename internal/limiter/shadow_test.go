package limiter_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// shadowed returns a policy of a limit of n in an hour, beside shadows of one and of none.
func shadowed(algorithm string, n int64) policy.Policy {
	p := policyOf(algorithm, n, time.Hour)
	for i, tight := range []int64{1, 0} {
		l := policy.Limit{Name: []string{"one", "none"}[i], Algorithm: algorithm, Limit: tight, Window: 30 * time.Minute, Shadow: true}
		p.Limits = append(p.Limits, l)
	}
	return p
}

// wouldDeny returns the names of the shadows that would deny d.
func wouldDeny(d *count.Decision) (names string) {
	for i := range d.Limits() {
		if l := &d.Limits()[i]; l.WouldDeny() {
			names += l.Limit.Name + " "
		}
	}
	return strings.TrimSpace(names)
}

// TestShadowsAtOwners holds that an instance which asks the owner of a key is told what shadows would deny and denied by
// none, and that what it remembers of a denial rests on the limit that denies: while it does, the owner is not asked.
func TestShadowsAtOwners(t *testing.T) {
	for _, algorithm := range remembered() {
		synctest.Test(t, func(t *testing.T) {
			asks, _, link := askerOf(t, shadowed(algorithm, 3))
			for i, want := range []string{"none", "one none", "one none"} {
				if d := mustTake(t, asks); !d.Allowed || wouldDeny(&d) != want {
					t.Fatalf("%s, take %d: allowed %v, would be denied by %q, want by %q", algorithm, i+1, d.Allowed, wouldDeny(&d), want)
				}
			}
			if d := mustTake(t, asks); d.Allowed || d.TightestLimit().Shadow {
				t.Fatalf("%s: the fourth of three is allowed, or %s denies it", algorithm, d.TightestLimit().Name)
			}
			asked := link.asked.Load()
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				if d := mustTake(t, asks); d.Allowed || wouldDeny(&d) != "one none" {
					t.Fatalf("%s: %+v, would be denied by %q", algorithm, d.Verdict, wouldDeny(&d))
				}
			}
			if n := link.asked.Load() - asked; n > 1 {
				t.Errorf("%s: the owner was asked %d times of a key that is full", algorithm, n)
			}
		})
	}
}

// TestShadowsCostNoRequest holds that a caller that is over shadows only, and over no limit, costs no more requests
// than without them: an engine that writes first, without owners, does not read before it writes, nor take anything
// back.
func TestShadowsCostNoRequest(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			var requests [2]int
			for i, p := range []policy.Policy{policyOf(algorithm, 9, time.Hour), shadowed(algorithm, 9)} {
				f := newFakeStore()
				e := limiter.New(f, nil)
				if err := e.SetPolicies([]policy.Policy{p}); err != nil {
					t.Fatal(err)
				}
				for range 8 {
					if d := mustTake(t, e); !d.Allowed {
						t.Fatalf("denied: %+v", d.Verdict)
					}
				}
				requests[i] = len(f.reads) + len(f.writes)
			}
			if requests[0] != requests[1] {
				t.Errorf("%d requests, and with shadows %d", requests[0], requests[1])
			}
		})
	}
}

// TestShadowsOfNothingAsked checks that a call that is decided without a look at the counts has no shadow, and that a
// cost that only a shadow could never hold is asked for.
func TestShadowsOfNothingAsked(t *testing.T) {
	p := shadowed("sliding-log", 3)
	p.BlockFor = time.Minute
	e := limiter.New(newFakeStore(), nil)
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	d, err := e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: "a", Cost: 3})
	if err != nil || !d.Allowed || wouldDeny(&d) != "one none" {
		t.Fatalf("%+v, %v, would be denied by %q", d.Verdict, err, wouldDeny(&d))
	}
	for range 2 {
		if d, err = e.Take(context.Background(), limiter.Demand{Policy: "p", Identifier: "a"}); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d.Verdict, err)
		}
	}
	if !d.Blocked || wouldDeny(&d) != "" {
		t.Errorf("blocked %v, would be denied by %q", d.Blocked, wouldDeny(&d))
	}
}
