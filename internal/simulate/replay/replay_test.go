package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// event is one of a test.
type event struct {
	at     time.Duration // after the first
	id     string
	policy []string
	cost   int64
}

// drawLimit draws a limit of an algorithm.
func drawLimit(r *rand.Rand, algorithm string) policy.Limit {
	l := policy.Limit{
		Name: fmt.Sprint("l", r.IntN(1e9)), Algorithm: algorithm, Limit: int64(r.IntN(12)),
		Window: time.Duration(1+r.IntN(60)) * time.Second,
	}
	switch {
	case algorithm == "token-bucket" && r.IntN(2) == 0 && l.Limit > 0:
		l.Burst = 1 + int64(r.IntN(20))
	case algorithm == "fixed-window" && r.IntN(3) == 0:
		l.Window, l.Calendar, l.Timezone = 0, policy.CalendarDay, "Europe/Berlin"
	case algorithm == "sliding-tail" && r.IntN(2) == 0:
		l.Rounding = policy.RoundUp
	}
	return l
}

// drawPolicies draws one policy of each algorithm, some with a second limit, and one that derives
// another one.
func drawPolicies(r *rand.Rand) (policies []policy.Policy) {
	for _, algorithm := range policy.Algorithms() {
		p := policy.Policy{Name: algorithm, Limits: []policy.Limit{drawLimit(r, algorithm)}}
		if r.IntN(3) == 0 {
			p.Limits = append(p.Limits, drawLimit(r, policy.Algorithms()[r.IntN(4)]))
			p.Limits[1].Shadow = r.IntN(2) == 0 && !p.Limits[1].InCell()
		}
		if inCell := slices.ContainsFunc(p.Limits, policy.Limit.InCell); !inCell && r.IntN(3) == 0 {
			p.Count = policy.CountAll
		}
		if r.IntN(4) == 0 {
			p.BlockFor, p.BlockFactor, p.BlockMax = 5*time.Second, 2, time.Minute
		}
		if r.IntN(4) == 0 {
			p.Mode = policy.ModeShadow
		}
		if r.IntN(4) == 0 {
			p.Guarantee = policy.GuaranteeSerial
		}
		policies = append(policies, p)
	}
	return append(policies,
		policy.Policy{
			Name: "addresses", Limits: []policy.Limit{drawLimit(r, "sliding-log")}, Normalize: policy.Normalize{Form: policy.FormIP},
			Derive: []policy.Derivation{{Policy: "networks", From: policy.PartIPPrefix, IPv4Bits: 24}},
		},
		policy.Policy{Name: "networks", Limits: []policy.Limit{drawLimit(r, "sliding-tail")}})
}

// drawEvents draws some in order of time: bursts and pauses, of few callers.
func drawEvents(r *rand.Rand, policies []policy.Policy, n int) (events []event) {
	at := time.Duration(0)
	for range n {
		switch r.IntN(20) {
		case 0:
			at += time.Duration(r.IntN(100_000)) * time.Millisecond
		case 1, 2, 3, 4, 5, 6, 7, 8:
			at += time.Duration(r.IntN(3_000)) * time.Millisecond
		}
		e := event{at: at, id: fmt.Sprintf("192.0.%d.%d", r.IntN(2), r.IntN(3)), cost: 1}
		if r.IntN(5) == 0 {
			e.cost = 1 + int64(r.IntN(4))
		}
		e.policy = []string{policies[r.IntN(len(policies))].Name}
		if r.IntN(10) == 0 {
			e.policy = []string{policies[0].Name, policies[3].Name}
		}
		events = append(events, e)
	}
	return events
}

func (e *event) demands() (demands []limiter.Demand) {
	for _, p := range e.policy {
		demands = append(demands, limiter.Demand{Policy: p, Identifier: keys.Identifier(e.id), Cost: e.cost})
	}
	return demands
}

// verdict is what is compared of a decision.
func verdict(d *count.Decision) string {
	s := fmt.Sprint(d.Policy.Name, d.Allowed, d.WouldAllow, d.Blocked, d.Recorded, d.Tightest)
	for _, l := range d.Limits() {
		s += fmt.Sprint(" ", l.Verdict)
	}
	return s
}

// liveVerdicts has a live engine, by the system's clock, decide events, and returns the verdicts of
// each; one that it refuses has its error.
func liveVerdicts(t *testing.T, policies []policy.Policy, events []event, each func(at store.Instant, e *event, verdicts []string)) {
	engine := limiter.New(embedded.New(nil), &limiter.Options{Identifiers: identifier.Reader})
	if err := engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range events {
		e := &events[i]
		time.Sleep(time.Until(start.Add(e.at)))
		var verdicts []string
		answer, err := engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: e.demands()})
		switch {
		case err != nil:
			verdicts = []string{"refused"}
		case answer.Demands == nil:
			verdicts = []string{verdict(&answer.Decision)}
		default:
			for j := range answer.Demands {
				verdicts = append(verdicts, verdict(&answer.Demands[j]))
			}
		}
		each(store.InstantOf(time.Now()), e, verdicts)
	}
}

// TestVerdictsAreThoseOfTheLiveEngine has a live engine and a replay decide the same events under
// the same policies.
func TestVerdictsAreThoseOfTheLiveEngine(t *testing.T) {
	first := rand.Uint64()
	denied := 0
	for seed := first; seed < first+30 && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			policies := drawPolicies(r)
			events := drawEvents(r, policies, 400)
			past, err := New(&Options{Policies: policies, Against: policies})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			liveVerdicts(t, policies, events, func(at store.Instant, e *event, want []string) {
				n++
				if n%50 == 0 {
					past.now.store.Sweep()
				}
				refused, err := past.Take(at, e.demands())
				if err != nil {
					t.Fatal(err)
				}
				got := []string{"refused"}
				if refused == nil {
					got = nil
					for i := range past.now.subjects {
						got = append(got, verdict(&past.now.subjects[i].decision))
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, event %d, %+v: got\n%q\nwant\n%q", seed, n, e, got, want)
				}
			})
			for name, p := range past.Policies {
				if denied += int(p.Denied); p.DeniedAgainst != p.Denied || p.DeniedBoth != p.Denied || p.RequestsAgainst != p.Requests {
					t.Errorf("seed %d: %s against itself: %+v", seed, name, p)
				}
			}
		})
	}
	if denied < 500 {
		t.Errorf("%d denials: the events try nothing", denied)
	}
}

// TestTrialsAreThoseOfTheLiveEngine has a live engine decide the same events with the numbers that
// were tried in place of a limit's own.
func TestTrialsAreThoseOfTheLiveEngine(t *testing.T) {
	first := rand.Uint64()
	compared := 0
	for seed := first; seed < first+40 && !t.Failed(); seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		all := drawPolicies(r)
		p := all[r.IntN(len(policy.Algorithms()))]
		p.Guarantee = ""
		events := drawEvents(r, []policy.Policy{p, p, p, p}, 300)
		for i := range events {
			events[i].policy = events[i].policy[:1]
			events[i].cost = min(events[i].cost, 2)
		}
		past, err := New(&Options{Policies: []policy.Policy{p}})
		if err != nil {
			t.Fatal(err)
		}
		start := store.InstantOf(time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC))
		refused := 0
		for i := range events {
			no, err := past.Take(start.Add(events[i].at), events[i].demands())
			if err != nil {
				t.Fatal(err)
			}
			if no != nil {
				events[i].policy, refused = nil, refused+1
			}
		}
		result := past.Policies[p.Name]
		if result == nil || refused > len(events)/2 {
			continue
		}
		for i, trials := range result.Trials {
			for _, trial := range trials {
				want := deniedAt(t, variant(&p, i, trial.Limit, p.Name), i, start, events)
				if compared++; trial.Denied != want {
					t.Errorf("seed %d: %+v: limit %d: %d denied if it is %d, want %d", seed, p, i, trial.Denied, trial.Limit, want)
				}
			}
			if limit, denied, ok := result.Spares(i, 0); ok && (denied != 0 || !p.Limits[i].InCell() && len(p.Limits) == 1 &&
				deniedAt(t, variant(&p, i, limit, p.Name), i, start, events) > 0) {
				t.Errorf("seed %d: %+v: limit %d spares all if it is %d, but for %d", seed, p, i, limit, denied)
			}
			if limit, _, ok := result.Spares(i, 0); ok && limit > 1 && !slices.ContainsFunc(p.Limits, policy.Limit.InCell) && len(p.Limits) == 1 &&
				deniedAt(t, variant(&p, i, limit-1, p.Name), i, start, events) == 0 {
				t.Errorf("seed %d: %+v: limit %d spares all if it is %d, and with less too", seed, p, i, limit)
			}
		}
	}
	if compared < 200 {
		t.Errorf("%d numbers compared", compared)
	}
}

// deniedAt returns how many events are denied under p by an engine of its own, and if its limit i is a shadow, how many
// that one would deny of the others.
func deniedAt(t *testing.T, p policy.Policy, i int, start store.Instant, events []event) (denied int64) {
	t.Helper()
	at := start
	now := func() time.Time { return at.Time() }
	engine := limiter.New(embedded.New(&embedded.Options{Now: now}), &limiter.Options{Now: now})
	if err := engine.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	for j := range events {
		if events[j].policy == nil {
			continue
		}
		at = start.Add(events[j].at)
		d, err := engine.Take(t.Context(), events[j].demands()[0])
		passes := err == nil && d.WouldAllow
		if !p.Limits[i].Shadow && !passes || p.Limits[i].Shadow && passes && !d.Limits()[i].Allowed {
			denied++
		}
	}
	return denied
}

// TestShadowSaysWhatItWouldDeny has a limit in shadow beside one that is enforced.
func TestShadowSaysWhatItWouldDeny(t *testing.T) {
	p := policy.Policy{Name: "p", Limits: []policy.Limit{
		{Name: "now", Algorithm: "sliding-log", Limit: 4, Window: time.Minute},
		{Name: "next", Algorithm: "sliding-tail", Limit: 2, Window: time.Minute, Shadow: true},
	}}
	past, err := New(&Options{Policies: []policy.Policy{p}})
	if err != nil {
		t.Fatal(err)
	}
	start := store.InstantOf(time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC))
	for i := range 6 {
		if _, err := past.Take(start.Add(time.Duration(i)*time.Second), []limiter.Demand{{Policy: "p", Identifier: "a"}}); err != nil {
			t.Fatal(err)
		}
	}
	got := past.Policies["p"]
	if got.Denied != 2 || !slices.Equal(got.DeniedBy, []int64{2, 2, 0, 0}) || got.CallersHit() != 1 {
		t.Errorf("%d of six denied, by %v: want two, and two that the shadow would", got.Denied, got.DeniedBy)
	}
	wants := map[int64]int64{1: 3, 2: 2, 3: 1, 4: 0, 6: 0}
	for _, trial := range got.Trials[1] {
		if want := wants[trial.Limit]; trial.Denied != want {
			t.Errorf("the shadow would deny %d if it were %d, want %d", trial.Denied, trial.Limit, want)
		}
	}
	if number, hit, ok := got.Spares(1, 0); number != 4 || hit != 0 || !ok {
		t.Errorf("the shadow spares all if it is %d, but for %d", number, hit)
	}
	if bin := past.Series.Bins[3].Policies["p"]; !slices.Equal(bin.Denied, []int64{0, 1, 0, 0}) {
		t.Errorf("in the fourth second %v", bin.Denied)
	}
}
