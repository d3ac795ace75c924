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
	"github.com/ratelimitd/ratelimitd/internal/race"
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
		if algorithm == policy.Concurrent.Name { // no log says how long a request took
			continue
		}
		p := policy.Policy{Name: algorithm, Limits: []policy.Limit{drawLimit(r, algorithm)}}
		if r.IntN(3) == 0 {
			beside := policy.Algorithms()[r.IntN(4)]
			if p.Limits[0].InCell() {
				beside = algorithm
			}
			p.Limits = append(p.Limits, drawLimit(r, beside))
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

// verdict has the compared parts of a decision.
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
	first, seeds := rand.Uint64(), 30
	if race.Enabled {
		seeds = 10
	}
	denied := 0
	for seed := first; seed < first+uint64(seeds) && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			policies := drawPolicies(r)
			events := drawEvents(r, policies, 400)
			past, err := New(&Options{Policies: policies, Against: policies, Together: []string{policies[0].Name, policies[3].Name}, Confirms: true})
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
	if denied < 15*seeds {
		t.Errorf("%d denials: the events try nothing", denied)
	}
}

// TestTrialsAreRunsOfSuchAFile has each number that was tried, and each that spares callers, in a file, and decides
// the same events under that.
func TestTrialsAreRunsOfSuchAFile(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine replays thousands of files")
	}
	first := rand.Uint64()
	compared, spared, linked := 0, 0, 0
	for seed := first; seed < first+12 && !t.Failed(); seed++ {
		r := rand.New(rand.NewPCG(seed, 0))
		policies := drawPolicies(r)
		together := []string{policies[0].Name, policies[3].Name}
		events := drawEvents(r, policies, 300)
		for i := range events {
			events[i].cost = min(events[i].cost, 2)
		}
		_, events = decided(t, &Options{Policies: policies, NoTrials: true}, events) // without those that a server refuses
		past, _ := decided(t, &Options{Policies: policies, Together: together}, events)
		for n := range policies {
			p := &policies[n]
			result := past.Policies[p.Name]
			if result == nil {
				continue
			}
			if past.now.policies[p.Name].linked != nil {
				linked++
			}
			for i, trials := range result.Trials {
				for _, trial := range trials {
					want, refused := with(t, policies, n, i, trial.Number, events)
					compared++
					if got := deniedBy(want, i) + refused; trial.Denied != got {
						t.Errorf("seed %d: %+v: limit %d: %d denied if it is %d, and %d by such a file", seed, p, i, trial.Denied, trial.Number, got)
					}
				}
				for _, beyond := range []float64{0, .2, .5} {
					number, hit, ok := result.Spares(i, beyond)
					if !ok || p.Limits[i].Shadow {
						continue
					}
					spared++
					most := int64(beyond * float64(result.Callers()))
					if run, refused := with(t, policies, n, i, number, events); refused == 0 && (run.CallersHit() != hit || hit > most) {
						got := run.CallersHit()
						t.Errorf("seed %d: %+v: limit %d: %d hits %d callers, and %d by such a file; at most %d may be", seed, p, i, number, hit, got, most)
					}
					if !result.Exact(i) || number <= 1 {
						continue
					}
					if run, refused := with(t, policies, n, i, number-1, events); refused == 0 && run.CallersHit() <= most {
						t.Errorf("seed %d: %+v: limit %d: %d spares all but %d, and one less does, too", seed, p, i, number, most)
					}
				}
			}
		}
	}
	if compared < 400 || spared < 40 || linked < 20 {
		t.Errorf("%d numbers compared, %d that spare, %d policies linked", compared, spared, linked)
	}
}

// with returns what becomes of policy n if its limit i has another number, and how many events a server refuses then.
func with(t *testing.T, policies []policy.Policy, n, i int, number int64, events []event) (p *PolicyResult, refused int64) {
	t.Helper()
	changed := slices.Clone(policies)
	changed[n].Limits = limitsWith(changed[n].Limits, i, number)
	run, kept := decided(t, &Options{Policies: changed, NoTrials: true}, events)
	if p = run.Policies[policies[n].Name]; p == nil {
		p = run.result(run.now.policies[policies[n].Name])
	}
	return p, int64(len(events) - len(kept))
}

// decided returns a replay of events, and those that were not refused.
func decided(t *testing.T, opts *Options, events []event) (made *Replay, kept []event) {
	t.Helper()
	made, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	start := store.InstantOf(time.Date(2026, 3, 28, 22, 0, 0, 0, time.UTC))
	for i := range events {
		refused, err := made.Take(start.Add(events[i].at), events[i].demands())
		if err != nil {
			t.Fatal(err)
		}
		if refused == nil {
			kept = append(kept, events[i])
		}
	}
	return made, kept
}

// deniedBy returns what a curve of limit i tells: requests that are denied or, of a shadow, that it would deny of the others.
func deniedBy(p *PolicyResult, i int) int64 {
	if p.Policy.Limits[i].Shadow {
		return p.DeniedBy[i]
	}
	return p.Denied
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
		if want := wants[trial.Number]; trial.Denied != want {
			t.Errorf("the shadow would deny %d if it were %d, want %d", trial.Denied, trial.Number, want)
		}
	}
	if number, hit, ok := got.Spares(1, 0); number != 4 || hit != 0 || !ok {
		t.Errorf("the shadow spares all if it is %d, but for %d", number, hit)
	}
	if bin := past.Series.Bins[3].Policies["p"]; !slices.Equal(bin.Denied, []int64{0, 1, 0, 0}) {
		t.Errorf("in the fourth second %v", bin.Denied)
	}
}
