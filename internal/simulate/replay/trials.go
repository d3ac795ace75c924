package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// trials decide what events would have met if one limit of a policy had another number, all else
// being equal but for blocks, which are left out, and for what another policy denied.
//
// As long as nothing was denied to a caller, what is counted for it is the same whatever the
// number. So a trial begins, for each caller, where it may deny for the first time, with a copy of
// what is counted then; the callers that never come near cost nothing. Buckets leak by their limit:
// their trials go on for all callers from the start.
type trials struct {
	side side // with each trial as a policy
}

// limitTrials are those of one limit.
type limitTrials struct {
	numbers []int64 // that are tried, with the limit's own
	own     int     // index of the limit's own
	decided bool    // what the own number denies is what was decided: nothing was left out
	stages  []stage
	always  bool // they go on for all callers from the start
}

// stage is a trial, in the order in which they begin.
type stage struct {
	policy  string // in trials.side
	number  int64
	from    int64 // it begins where this may be exceeded
	highest bool  // it denies nothing, and tells what is used: the trials above the own number begin as copies of it
	shown   int   // index into the numbers
}

// factors are by what a limit is multiplied in trials, and fewFactors where they go on for all
// callers, each of which costs as much as what is decided.
var (
	factors    = []float64{.25, .5, .75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100}
	fewFactors = []float64{.25, .5, 1, 2, 4, 10, 50}
)

// newTrials returns the trials of all limits of now, which gets to know them.
func newTrials(now *side, maxCallers int) (*trials, error) {
	var all []policy.Policy
	for _, p := range now.engine.Policies() {
		known := now.policies[p.Name]
		for i := range p.Limits {
			made := trialsOf(p, i)
			for j := range made.stages {
				st := &made.stages[j]
				st.policy = fmt.Sprintf("%d", len(all))
				all = append(all, variant(p, i, st.number, st.policy))
			}
			known.trials = append(known.trials, made)
		}
	}
	t := new(trials)
	if maxCallers == 0 {
		maxCallers = DefaultMaxCallers
	}
	return t, t.side.init(all, maxCallers*len(factors))
}

// trialsOf returns those of p's limit i.
func trialsOf(p *policy.Policy, i int) limitTrials {
	l := &p.Limits[i]
	t := limitTrials{decided: p.BlockFor == 0}
	most := int64(policy.MaxLimit)
	if l.Algorithm == "sliding-log" {
		most = policy.MaxLogLimit
	}
	if p.Mode == policy.ModeOff || len(l.By) > 0 { // whose number is not one
		return t
	}
	by := factors
	if t.always = slices.ContainsFunc(p.Limits, policy.Limit.InCell) || !t.decided && len(p.Limits) > 1; t.always {
		by = fewFactors
	}
	for _, f := range by {
		t.numbers = append(t.numbers, min(most, max(1, int64(f*float64(l.Limit)+.5))))
	}
	t.numbers = append(t.numbers, l.Limit)
	slices.Sort(t.numbers)
	t.numbers = slices.Compact(t.numbers)
	t.own = slices.Index(t.numbers, l.Limit)
	for shown, number := range t.numbers {
		if number != l.Limit || !t.decided {
			t.stages = append(t.stages, stage{number: number, from: number, shown: shown})
		}
		if number == l.Limit && !t.always {
			t.stages = append(t.stages, stage{number: most, from: l.Limit, highest: true})
		}
	}
	return t
}

// variant returns p as it is tried, with another number for limit i.
func variant(p *policy.Policy, i int, number int64, name string) policy.Policy {
	v := *p
	v.Name, v.Normalize, v.Derive = name, policy.Normalize{}, nil
	v.Countries, v.NumberTypes = policy.Choice{}, policy.Choice{} // what they deny is not tried
	v.BlockFor, v.BlockFactor, v.BlockMax = 0, 0, 0
	v.Limits = slices.Clone(p.Limits)
	l := &v.Limits[i]
	if l.Burst != 0 && l.Limit > 0 {
		l.Burst = int64(min(policy.MaxLimit, max(1, float64(l.Burst)*float64(number)/float64(l.Limit)+.5)))
	}
	l.Limit = number
	return v
}

// start returns the trials, in which nothing happened yet.
func (t *limitTrials) start() []Trial {
	all := make([]Trial, len(t.numbers))
	for i, number := range t.numbers {
		all[i].Limit = number
	}
	return all
}

// fork begins the trials of s that may deny it for the first time now. It is to be called before
// the event is decided.
func (t *trials) fork(s *subject, now *side, at store.Instant) error {
	for i := range s.policy.trials {
		l, state := &s.policy.trials[i], &s.caller.limits[i]
		if l.always {
			state.stage = uint8(len(l.stages))
			continue
		}
		for int(state.stage) < len(l.stages) && state.used+s.cost > l.stages[state.stage].from {
			from, source := now, s.policy.Name
			if above := l.above(int(state.stage)); above != "" {
				from, source = &t.side, above
			}
			if err := t.copy(s, from, source, l.stages[state.stage].policy, at); err != nil {
				return err
			}
			state.stage++
		}
	}
	return nil
}

// above returns the policy of the highest trial, if it goes on already where n begins; else none.
func (t *limitTrials) above(n int) string {
	for i := range t.stages[:n] {
		if t.stages[i].highest {
			return t.stages[i].policy
		}
	}
	return ""
}

// copySlack is for how much longer than its window an event is copied: what is counted a little
// longer may be.
const copySlack = 5 * time.Second

// copy has the trial to begin with what is counted for s under the policy source of from.
func (t *trials) copy(s *subject, from *side, source, to string, at store.Instant) error {
	ctx, id := context.Background(), keys.Identifier(s.id)
	old, err := from.engine.KeyOf(source, id)
	if err != nil {
		return err
	}
	key, err := t.side.engine.KeyOf(to, id)
	if err != nil {
		return err
	}
	t.side.at = at
	q := store.Query{Key: old, Counts: true, ExpireAfter: at}
	windows := make([]time.Duration, store.SpanCount)
	for i := range s.policy.Limits {
		if l := &s.policy.Limits[i]; l.Algorithm == "sliding-log" {
			span := store.SpanOf(l.Window)
			windows[span] = max(windows[span], l.Window)
		}
	}
	for span, window := range windows {
		if window > 0 {
			q.Logs = append(q.Logs, store.LogQuery{Span: store.Span(span), After: at.Add(-window), Max: policy.MaxLogLimit})
		}
	}
	state, err := from.store.Read(ctx, &q)
	if err != nil {
		return err
	}
	if len(state.Counts) > 0 {
		if err := t.side.store.Write(ctx, &store.Write{Key: key, Add: state.Counts, Counts: true}); err != nil {
			return err
		}
	}
	for i, log := range state.Logs {
		if len(log.Events) == 0 {
			continue
		}
		span := q.Logs[i].Span
		err := t.side.store.Write(ctx, &store.Write{Key: key, Events: log.Events, Logs: []store.LogWrite{{
			Span: span, TTL: windows[span].Truncate(time.Second) + copySlack, Keep: policy.MaxLogLimit,
		}}})
		if err != nil {
			return err
		}
	}
	return nil
}

// take decides s, which was decided, in the trials that go on for it, and keeps how far it came.
func (t *trials) take(s *subject, at store.Instant) error {
	for i := range s.policy.trials {
		l, state := &s.policy.trials[i], &s.caller.limits[i]
		if len(l.stages) == 0 {
			continue
		}
		state.used = s.decision.Limits()[i].Used
		if l.decided && s.policy.denies(i, &s.decision) {
			l.deny(s, i, l.own)
		}
		// What those say that have not begun: they are as the one that they begin from, but shadows deny nothing then.
		rest := s.denied() && !s.policy.Limits[i].Shadow
		for j := range l.stages[:state.stage] {
			st := &l.stages[j]
			d, denied, err := t.decide(st, s, i, at)
			switch {
			case err != nil:
				return err
			case st.highest:
				rest = denied
				if limits := d.Limits(); len(limits) > 0 { // else another limit can't hold the cost at all
					state.used = limits[i].Used
				}
			case denied:
				l.deny(s, i, st.shown)
			}
		}
		for j := range l.stages[state.stage:] {
			if st := &l.stages[int(state.stage)+j]; rest && !st.highest {
				l.deny(s, i, st.shown)
			}
		}
		l.peak(state)
	}
	return nil
}

// deny counts that s is denied where limit i has the number of index n.
func (t *limitTrials) deny(s *subject, i, n int) {
	s.result.Trials[i][n].Denied += s.result.callers.weight()
	s.caller.limits[i].denied |= 1 << n
}

// peak keeps the most that a caller had used. Of a bucket it is the lowest number that was tried
// and never denied it.
func (t *limitTrials) peak(state *limitState) {
	if !t.always {
		state.peak = max(state.peak, state.used)
		return
	}
	for n := len(t.numbers) - 1; n >= 0; n-- {
		if state.denied>>n&1 == 1 {
			if n+1 < len(t.numbers) {
				state.peak = t.numbers[n+1]
			} else {
				state.peak = policy.MaxLimit
			}
			return
		}
	}
	state.peak = t.numbers[0]
}

// decide decides s in one trial of limit i.
func (t *trials) decide(st *stage, s *subject, i int, at store.Instant) (d count.Decision, denied bool, err error) {
	t.side.at = at
	t.side.sweep()
	d, err = t.side.engine.Take(context.Background(),
		limiter.Demand{Policy: st.policy, Identifier: keys.Identifier(s.id), Cost: s.cost})
	if errors.Is(err, limiter.ErrCostTooLarge) {
		return d, true, nil
	}
	return d, s.policy.denies(i, &d), err
}
