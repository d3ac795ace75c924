// Package replay decides past events under policies, by the engine of a server, and counts their outcomes by policy,
// limit, caller and time.
//
// The clock shows the time of the event. The package knows neither logs nor how results are shown. Its memory is bounded
// for any number of events.
package replay

import (
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Options of a Replay.
type Options struct {
	Policies   []policy.Policy
	Against    []policy.Policy // to compare with; nil: nothing is compared
	Together   []string        // names of policies that one event may ask for
	MaxCallers int             // maximum of callers within their windows at the same time; zero: DefaultMaxCallers
	NoTrials   bool            // no limit is tried with another number than its own
	Confirms   bool            // Confirm is called for confirmed events; else policies that depend on confirmations are off
}

// DefaultMaxCallers is the MaxCallers of Options that give none. So many callers take 1 GiB.
const DefaultMaxCallers = 1 << 22

// Replay decides events. Make one with New; it is not safe for concurrent use.
type Replay struct {
	Result // of the events so far

	now    side
	before *side   // under Options.Against; nil: there are none
	trials *trials // nil: there are none
	seed   maphash.Seed
	asked  []limiter.Demand // the event's demands for policies of before
}

// New returns a Replay of no events. The error names the policy that can't be served.
func New(opts *Options) (*Replay, error) {
	r := &Replay{seed: maphash.MakeSeed()}
	r.Policies, r.Series = make(map[string]*PolicyResult), newSeries()
	if err := r.now.init(opts.Policies, opts.MaxCallers, opts.Confirms); err != nil {
		return nil, err
	}
	if opts.Against != nil {
		r.before = new(side)
		if err := r.before.init(opts.Against, opts.MaxCallers, opts.Confirms); err != nil {
			return nil, fmt.Errorf("to compare with: %w", err)
		}
	}
	r.Unjudged, r.Untimed = r.now.unjudged, r.now.untimed
	if err := r.now.link(opts.Together); err != nil {
		return nil, err
	}
	if !opts.NoTrials {
		made, err := newTrials(&r.now, opts.MaxCallers)
		if err != nil {
			return nil, err
		}
		r.trials = made
	}
	return r, nil
}

// Confirm confirms the last event.
func (r *Replay) Confirm() error {
	if err := r.now.confirm(); err != nil || r.before == nil {
		return err
	}
	return r.before.confirm()
}

// Take decides an event: demands that are admitted together or not at all, at an instant that is not before that of the
// last event. refused is the error that a server would answer, in which case it counts nothing. err ends the replay.
func (r *Replay) Take(at store.Instant, demands []limiter.Demand) (refused, err error) {
	bin := r.Series.at(at)
	subjects, err := r.decide(bin, at, demands)
	if refused, err = refusal(err); err != nil {
		return nil, err
	}
	if r.before != nil {
		_, err = refusal(r.compare(bin, at, demands, subjects))
	}
	return refused, err
}

// decide decides an event under the policies, and counts its outcome.
func (r *Replay) decide(bin *Bin, at store.Instant, demands []limiter.Demand) ([]subject, error) {
	demands = r.now.limited(demands)
	subjects, err := r.now.resolve(demands)
	if err != nil {
		return nil, err
	}
	for i := range subjects {
		r.know(&subjects[i])
	}
	if r.trials == nil {
		return subjects, r.settle(bin, at, demands, subjects)
	}
	linked, err := linkOf(subjects)
	if err != nil {
		return nil, err
	}
	s := &subjects[0]
	alone := linked == nil && s.caller != nil
	if alone {
		if err := r.trials.fork(s, &r.now, at); err != nil {
			return nil, err
		}
	}
	if err := r.settle(bin, at, demands, subjects); err != nil {
		return nil, err
	}
	switch {
	case alone:
		return subjects, r.trials.take(s, at)
	case linked != nil:
		return subjects, r.trials.takeLinked(linked, demands, subjects, at)
	}
	return subjects, nil
}

// settle decides subjects, which are those of demands, and counts their outcomes.
func (r *Replay) settle(bin *Bin, at store.Instant, demands []limiter.Demand, subjects []subject) error {
	if err := r.now.decide(at, demands, subjects); err != nil {
		return err
	}
	for i := range subjects {
		subjects[i].result.note(bin, &subjects[i], at)
	}
	return nil
}

// know gives s the state of its caller.
func (r *Replay) know(s *subject) {
	s.result, s.hash = r.result(s.policy), maphash.String(r.seed, s.id)
	s.caller = s.result.callers.of(s.hash)
}

// compare decides an event under the policies to compare with. subjects are those of the event under the other
// policies; none: it was not decided.
func (r *Replay) compare(bin *Bin, at store.Instant, demands []limiter.Demand, subjects []subject) error {
	r.asked = r.asked[:0]
	for _, d := range r.before.limited(demands) {
		if r.before.policies[d.Policy] != nil {
			r.asked = append(r.asked, d)
		}
	}
	if len(r.asked) == 0 {
		return nil
	}
	before, err := r.before.resolve(r.asked)
	if err != nil {
		return err
	}
	if err := r.before.decide(at, r.asked, before); err != nil {
		return err
	}
	for i := range before {
		s := &before[i]
		r.know(s)
		s.result.noteAgainst(bin, s, deniedUnder(subjects, s.policy.Name))
	}
	return nil
}

// deniedUnder reports whether one of subjects is denied under the policy called name.
func deniedUnder(subjects []subject, name string) bool {
	for i := range subjects {
		if subjects[i].policy.Name == name && subjects[i].denied() {
			return true
		}
	}
	return false
}

// refusal separates the errors that a server would answer from those that end the replay.
func refusal(err error) (refused, fatal error) {
	switch {
	case err == nil || errors.Is(err, limiter.ErrInvalid) || errors.Is(err, limiter.ErrCostTooLarge):
		return err, nil
	case errors.Is(err, store.ErrOverloaded):
		return nil, fmt.Errorf("too many callers are within their windows at the same time: give a higher --max-callers: %w", err)
	}
	return nil, err
}
