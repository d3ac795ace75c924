package storetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// testShadowChangesNothing makes the same random calls under a policy with shadows and under the same policy without.
// Both must answer alike, and each shadow must answer like its model.
func testShadowChangesNothing(t *testing.T, store store.Store) {
	cases := shadowCases()
	if len(cases) < 8 { // four algorithms that are counted in two ways
		t.Errorf("%d cases: no policy has shadows", len(cases))
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e := NewEngine(t, store, limiter.Options{}, c.with, c.without)
			seed := rand.Uint64()
			draw := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it must be repeatable
			var counted []unit
			for step := range 30 {
				*e.Now = e.Now.Add(time.Duration(draw.IntN(12_000)) * time.Millisecond)
				op := []count.Op{count.OpTake, count.OpTake, count.OpTake, count.OpTake, count.OpCheck, count.OpRecord}[draw.IntN(6)]
				cost := 1 + int64(draw.IntN(8)/7)
				got, want := e.doCost(t, op, "with", cost), e.doCost(t, op, "without", cost)
				at := fmt.Sprintf("seed %d, step %d, %s of %d", seed, step, op, cost)
				sameDecision(t, at, &got, &want)
				if op != count.OpRecord {
					checkShadow(t, at, &got, counted, e.Now.UnixMilli(), cost)
				}
				if got.Recorded == count.RecordedYes {
					counted = append(counted, unit{e.Now.UnixMilli(), cost})
				}
			}
		})
	}
}

type shadowCase struct {
	name          string
	with, without policy.Policy
}

// shadowCases returns a policy with shadows of all algorithms that have them and one without, for each algorithm that
// is enforced, for each way of counting and each guarantee.
func shadowCases() (all []shadowCase) {
	var shadows []policy.Limit
	for _, algorithm := range policy.Algorithms() {
		for _, n := range []int64{3, 8, 0} { // tighter, looser, and one that would deny everything
			l := policy.Limit{Name: fmt.Sprintf("%s-%d", algorithm, n), Algorithm: algorithm, Limit: n, Window: time.Minute, Shadow: true}
			if !l.InCell() && algorithm != policy.Concurrent.Name {
				shadows = append(shadows, l.WithDefaults())
			}
		}
	}
	for _, enforced := range policy.Algorithms() {
		for _, p := range []policy.Policy{
			{Guarantee: policy.GuaranteeCounted}, {Count: policy.CountAll},
		} {
			without := p
			without.Name = "without"
			without.Limits = []policy.Limit{{Name: "enforced", Algorithm: enforced, Limit: 5, Window: time.Minute}}
			with := without
			with.Name = "with"
			with.Limits = slices.Concat(without.Limits, shadows)
			if len(with.Problems()) == 0 {
				all = append(all, shadowCase{fmt.Sprintf("%s, %s%s", enforced, p.Guarantee, p.Count), with, without})
			}
		}
	}
	return all
}

// unit is a counted unit in a model.
type unit struct{ at, cost int64 }

func (e Engine) doCost(t testing.TB, op count.Op, policy string, cost int64) count.Decision {
	t.Helper()
	demands := []limiter.Demand{{Policy: policy, Identifier: Somebody, Cost: cost}}
	answer, err := e.Engine.Do(t.Context(), &limiter.Call{Op: op, Demands: demands})
	if err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	return answer.Decision
}

// sameDecision fails the test unless got equals want except for shadows. Beyond a limit, used is a lower bound.
func sameDecision(t testing.TB, at string, got, want *count.Decision) {
	t.Helper()
	g, w := got.Verdict, want.Verdict
	if limit := want.TightestLimit().Limit; w.Used > limit && g.Used > limit {
		g.Used = w.Used
	}
	if g != w || got.Allowed != want.Allowed || got.WouldAllow != want.WouldAllow || got.Recorded != want.Recorded {
		t.Errorf("%s: %+v, recorded %s; without shadows: %+v, recorded %s", at, g, got.Recorded, w, want.Recorded)
	}
	if name := got.TightestLimit().Name; name != "enforced" {
		t.Errorf("%s: the answer contains %s", at, name)
	}
}

// checkShadow fails the test unless each shadow in d would deny cost at now, in milliseconds, exactly if it does not fit
// beside the earlier units, and has no wait.
func checkShadow(t testing.TB, at string, d *count.Decision, counted []unit, now, cost int64) {
	t.Helper()
	for i := range d.Limits() {
		l := &d.Limits()[i]
		if !l.Limit.Shadow {
			continue
		}
		if want := usedBy(l.Limit, counted, now)+cost > l.Limit.Limit; l.WouldDeny() != want {
			t.Errorf("%s: %s would deny: %v, want %v", at, l.Limit.Name, l.WouldDeny(), want)
		}
		if l.RetryAfter != 0 {
			t.Errorf("%s: %s has a wait of %v", at, l.Limit.Name, l.RetryAfter)
		}
	}
}

// usedBy returns the units of counted that are used of l at now, by the definition of its algorithm.
func usedBy(l *policy.Limit, counted []unit, now int64) (used int64) {
	window := l.Window.Milliseconds()
	previous := int64(0)
	for _, e := range counted {
		counts := false
		switch l.Algorithm {
		case policy.SlidingLog.Name:
			counts = e.at > now-window
		case policy.FixedWindow.Name, policy.SlidingTail.Name:
			counts = e.at/window == now/window
			if e.at/window == now/window-1 {
				previous += e.cost
			}
		case policy.SlidingWindow.Name:
			bucket := window / int64(l.Buckets)
			counts = e.at/bucket*bucket > now-window
		}
		if counts {
			used += e.cost
		}
	}
	if l.Algorithm == policy.SlidingTail.Name {
		used += previous * (window - now%window) / window
	}
	return used
}
