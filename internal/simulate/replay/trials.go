package replay

import (
	"cmp"
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

// trials decide events as if one limit of a policy had another number. Their denials are those of a run with that number
// in the file.
//
// Until its first denial, the counts of a caller do not depend on the number. So the trial of a caller begins with a copy
// of its counts where it may be denied for the first time, and callers that never come near cost nothing. Buckets leak by
// their limit, so their trials include all callers from the start. So do those of linked policies, each of which is a run
// of all policies that are linked.
type trials struct {
	side  side      // each trial is a policy, or several that are linked
	tried []subject // of a run
	asked []limiter.Demand
}

// limitTrials are the trials of one limit.
type limitTrials struct {
	numbers []int64 // the tried numbers and the limit's own
	own     int     // index of the limit's own number
	stages  []stage
	always  bool // they include all callers from the start
}

// exact reports whether each caller's peak is known, and not only the denials with the tried numbers.
func (t *limitTrials) exact() bool { return !t.always }

// stage is a trial. A limit has them in the order in which they begin.
type stage struct {
	policy  string // in trials.side
	number  int64
	from    int64 // it begins where more units than these may be used
	highest bool  // it denies nothing, and counts the used units; the trials above the own number begin as copies of it
	shown   int   // index into the numbers
}

// run is a trial of linked policies, all of which decide anew.
type run struct {
	names  map[string]string // of the linked policies in trials.side, by their own
	policy *inForce          // whose limit is tried
	limit  int
	shown  int // index into the numbers
}

// factors are the factors by which a limit is multiplied in trials. fewFactors are those of trials that include all
// callers, as each of these costs as much as a decision.
var (
	factors    = []float64{.25, .5, .75, 1, 1.5, 2, 3, 5, 10, 20, 50, 100}
	fewFactors = []float64{.25, .5, 1, 2, 4, 10, 50}
)

// newTrials returns the trials of all limits of now, and sets those of its policies.
func newTrials(now *side, maxCallers int) (*trials, error) {
	var all []policy.Policy
	runs := 0
	for _, p := range now.engine.Policies() {
		known := now.policies[p.Name]
		if goesByConfirmation(p) { // no log has the confirmations that denied units would have had
			known.trials = make([]limitTrials, len(p.Limits))
			continue
		}
		for i := range p.Limits {
			made := trialsOf(known, i)
			if known.linked != nil {
				runs += made.runs(known, i, &all)
			}
			for j := range made.stages {
				st := &made.stages[j]
				st.policy = fmt.Sprint(len(all))
				all = append(all, variant(p, i, st.number, st.policy))
			}
			known.trials = append(known.trials, made)
		}
	}
	t := new(trials)
	maxCallers = cmp.Or(maxCallers, DefaultMaxCallers)
	return t, t.side.init(all, maxCallers*max(len(factors), runs), true)
}

// trialsOf returns the trials of p's limit i.
func trialsOf(p *inForce, i int) limitTrials {
	l := &p.Limits[i]
	var t limitTrials
	most := int64(policy.MaxLimit)
	if l.Algorithm == "sliding-log" {
		most = policy.MaxLogLimit
	}
	if p.Mode == policy.ModeOff || len(l.By) > 0 || l.Max > 0 { // whose number is not one
		return t
	}
	by := factors
	if t.always = p.linked != nil || slices.ContainsFunc(p.Limits, policy.Limit.InCell); t.always {
		by = fewFactors
	}
	for _, f := range by {
		t.numbers = append(t.numbers, min(most, max(1, int64(f*float64(l.Limit)+.5))))
	}
	t.numbers = append(t.numbers, l.Limit)
	slices.Sort(t.numbers)
	t.numbers = slices.Compact(t.numbers)
	t.own = slices.Index(t.numbers, l.Limit)
	if p.linked != nil {
		return t
	}
	for shown, number := range t.numbers {
		if number != l.Limit {
			t.stages = append(t.stages, stage{number: number, from: number, shown: shown})
		} else if !t.always {
			t.stages = append(t.stages, stage{number: most, from: l.Limit, highest: true})
		}
	}
	return t
}

// runs adds the policies of the runs of p's limit i to all, and returns how many runs there are.
func (t *limitTrials) runs(p *inForce, i int, all *[]policy.Policy) (n int) {
	for shown, number := range t.numbers {
		if shown == t.own {
			continue // the decided one
		}
		r := run{make(map[string]string), p, i, shown}
		for _, member := range p.linked.members {
			r.names[member.Name] = fmt.Sprint(len(*all) + len(r.names))
		}
		for _, member := range p.linked.members {
			v := member.Policy
			v.Name, v.Derive = r.names[member.Name], slices.Clone(v.Derive)
			for j := range v.Derive {
				v.Derive[j].Policy = r.names[v.Derive[j].Policy]
			}
			if member == p {
				v.Limits = limitsWith(v.Limits, i, number)
			}
			*all = append(*all, v)
		}
		p.linked.runs = append(p.linked.runs, r)
		n++
	}
	return n
}

// variant returns p under another name, with another number for limit i.
func variant(p *policy.Policy, i int, number int64, name string) policy.Policy {
	v := *p
	v.Name, v.Normalize = name, policy.Normalize{}
	v.Limits = limitsWith(p.Limits, i, number)
	return v
}

// limitsWith returns limits with another number for limit i.
func limitsWith(limits []policy.Limit, i int, number int64) []policy.Limit {
	limits = slices.Clone(limits)
	l := &limits[i]
	if l.Burst != 0 && l.Limit > 0 {
		l.Burst = int64(min(policy.MaxLimit, max(1, float64(l.Burst)*float64(number)/float64(l.Limit)+.5)))
	}
	l.Limit = number
	return limits
}

// start returns the trials without any denials.
func (t *limitTrials) start() []Trial {
	all := make([]Trial, len(t.numbers))
	for i, number := range t.numbers {
		all[i].Number = number
	}
	return all
}

// fork begins the trials that may deny s for the first time now. It must be called before the event is decided.
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

// above returns the policy of the highest trial if that has begun before trial n, else an empty string.
func (t *limitTrials) above(n int) string {
	for i := range t.stages[:n] {
		if t.stages[i].highest {
			return t.stages[i].policy
		}
	}
	return ""
}

// copySlack is the time by which a copied event outlives its window, because units may count a little longer.
const copySlack = 5 * time.Second

// copy copies the counts of s from the policy source of from to the trial to.
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

// take decides s, which the policies have decided, in the trials that have begun for it, and updates its state.
func (t *trials) take(s *subject, at store.Instant) error {
	for i := range s.policy.trials {
		l, state := &s.policy.trials[i], &s.caller.limits[i]
		if len(l.numbers) == 0 {
			continue
		}
		state.used = s.decision.Limits()[i].Used
		if s.policy.denies(i, &s.decision) {
			l.deny(s, i, l.own)
		}
		// Stages that have not begun decide like the stage that they begin from, but shadows deny nothing yet.
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
		state.peak, state.beyond = max(state.peak, state.used), state.beyond || rest
	}
	return nil
}

// takeLinked decides an event in all runs of linked policies, which have decided subjects themselves.
func (t *trials) takeLinked(linked *linked, demands []limiter.Demand, subjects []subject, at store.Instant) error {
	for i := range subjects {
		s := &subjects[i]
		for j := range s.policy.trials {
			if l := &s.policy.trials[j]; len(l.numbers) > 0 && s.policy.denies(j, &s.decision) {
				l.deny(s, j, l.own)
			}
		}
	}
	for n := range linked.runs {
		r := &linked.runs[n]
		t.asked = t.asked[:0]
		for _, d := range demands {
			d.Policy = r.names[d.Policy]
			t.asked = append(t.asked, d)
		}
		t.tried = append(t.tried[:0], subjects...)
		err := t.side.decide(at, t.asked, t.tried)
		tooLarge := errors.Is(err, limiter.ErrCostTooLarge)
		if err != nil && !tooLarge {
			return err
		}
		for i := range subjects {
			s := &subjects[i]
			if s.policy == r.policy && (tooLarge || s.policy.denies(r.limit, &t.tried[i].decision)) {
				s.policy.trials[r.limit].deny(s, r.limit, r.shown)
			}
		}
	}
	return nil
}

// deny counts a denial of s by a trial in which limit i has the number of index n.
func (t *limitTrials) deny(s *subject, i, n int) {
	trial := &s.result.Trials[i][n]
	if s.policy.linked != nil { // regardless of the sample
		trial.Denied++
	} else {
		trial.Denied += s.result.callers.weight()
	}
	if s.caller != nil {
		s.caller.limits[i].denied |= 1 << n
	}
}

// decide decides s in one trial of limit i.
func (t *trials) decide(st *stage, s *subject, i int, at store.Instant) (d count.Decision, denied bool, err error) {
	t.side.at = at
	t.side.sweep()
	d, err = t.side.engine.Take(context.Background(),
		limiter.Demand{Policy: st.policy, Identifier: keys.Identifier(s.id), Cost: s.cost, Limit: s.limit})
	if errors.Is(err, limiter.ErrCostTooLarge) {
		return d, true, nil
	}
	return d, s.policy.denies(i, &d), err
}
