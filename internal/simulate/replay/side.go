package replay

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// side is one set of policies with its engine and its store, whose clock shows the instant of the event.
type side struct {
	engine   *limiter.Engine
	store    *embedded.Store
	policies map[string]*inForce
	at       store.Instant
	since    int // events since the store was swept
	demands  []limiter.Demand
	subjects []subject
	unjudged []string // policies that depend on confirmations, which no log has
	untimed  []string // policies that depend on requests' ends, which no log has
	confirms bool     // see Options
	receipt  string   // of the last event; empty: it has no units to confirm
}

// inForce is a policy of a side.
type inForce struct {
	policy.Policy                       // with its defaults
	read          policy.ReadIdentifier // nil: identifiers are not normalized
	derives       []*inForce
	linked        *linked       // nil: it is not linked
	trials        []limitTrials // of each limit
}

// subject is one caller that an event is counted for, under one policy.
type subject struct {
	policy   *inForce
	id       string // in its canonical form
	cost     int64
	limit    int64 // of the event itself; 0: none
	decision count.Decision

	result *PolicyResult
	hash   uint64
	caller *caller // nil: the sample leaves it out
}

func (s *subject) denied() bool { return !s.decision.WouldAllow }

// denies reports whether d is a denial or, if p's limit i is a shadow, whether that would deny what the others admit.
func (p *inForce) denies(i int, d *count.Decision) bool {
	if !p.Limits[i].Shadow {
		return !d.WouldAllow
	}
	limits := d.Limits() // empty if something else has decided
	return d.WouldAllow && i < len(limits) && limits[i].WouldDeny()
}

const (
	minSwept   = 1 << 14 // keys up to which a store is not swept
	sweepEvery = 1 << 10 // events between two looks at the number of keys
)

func (s *side) init(policies []policy.Policy, maxCallers int, confirms bool) error {
	s.confirms = confirms
	maxCallers = cmp.Or(maxCallers, DefaultMaxCallers)
	now := func() time.Time { return s.at.Time() }
	s.store = embedded.New(&embedded.Options{MaxKeys: maxCallers, Now: now})
	s.engine = limiter.New(s.store, &limiter.Options{Now: now, Identifiers: identifier.Reader})
	asOneCopy := make([]policy.Policy, len(policies))
	for i, p := range policies {
		asOneCopy[i] = oneCopy(p)
		if !confirms && goesByConfirmation(&p) {
			asOneCopy[i].Mode = policy.ModeOff
			s.unjudged = append(s.unjudged, p.Name)
		}
		if p.IsConcurrent() {
			asOneCopy[i].Mode = policy.ModeOff
			s.untimed = append(s.untimed, p.Name)
		}
	}
	slices.Sort(s.unjudged)
	slices.Sort(s.untimed)
	if err := s.engine.SetPolicies(asOneCopy); err != nil {
		return err
	}
	s.policies = make(map[string]*inForce, len(policies))
	for _, p := range s.engine.Policies() {
		made := &inForce{Policy: *p}
		if p.Normalize.Form != "" {
			read, err := identifier.Reader(p)
			if err != nil {
				return fmt.Errorf("policy %q: normalize: %w", p.Name, err)
			}
			made.read = read
		}
		s.policies[p.Name] = made
	}
	for _, p := range s.policies {
		for _, d := range p.Derive {
			p.derives = append(p.derives, s.policies[d.Policy])
		}
	}
	return nil
}

// goesByConfirmation reports whether decisions of p depend on confirmations.
func goesByConfirmation(p *policy.Policy) bool {
	return slices.ContainsFunc(p.Limits, func(l policy.Limit) bool { return l.GoesByConfirmation() })
}

// oneCopy returns p without the settings for several instances, which change no verdict of one, and without its
// derivations for calls that conversions deny, because no log says how those ended.
func oneCopy(p policy.Policy) policy.Policy {
	p.Derive = slices.DeleteFunc(slices.Clone(p.Derive), func(d policy.Derivation) bool { return d.When != "" })
	p.Guarantee, p.Consistency, p.Counting, p.OnStoreError = "", policy.Consistency{}, "", ""
	return p
}

// limited returns demands without the limits that their policies do not take, although those of the other side may. The
// result is valid until the next call.
func (s *side) limited(demands []limiter.Demand) []limiter.Demand {
	s.demands = append(s.demands[:0], demands...)
	for i := range s.demands {
		d := &s.demands[i]
		if p := s.policies[d.Policy]; p == nil || p.FromRequest() < 0 {
			d.Limit = 0
		}
	}
	return s.demands
}

// resolve returns the subjects of demands, in the order in which the engine decides: the demands, and then those that
// their policies derive. They are valid until the next resolve.
func (s *side) resolve(demands []limiter.Demand) ([]subject, error) {
	s.subjects = s.subjects[:0]
	var parts [policy.MaxDemands][]string
	for i := range demands {
		d := &demands[i]
		p := s.policies[d.Policy]
		if p == nil {
			return nil, limiter.ErrUnknownPolicy
		}
		id := string(d.Identifier)
		if p.read != nil {
			canonical, found, err := p.read(id)
			if err != nil {
				return nil, &limiter.FieldError{Field: "identifier", Detail: err.Error()}
			}
			id = canonical
			if p.Mode == policy.ModeShadow || p.Mode == policy.ModeEnforce && found.Refused == "" { // else nothing else is asked
				parts[i] = found.Parts
			}
		}
		s.subjects = append(s.subjects, subject{policy: p, id: id, cost: max(1, d.Cost), limit: d.Limit})
	}
	for i := range demands {
		by := s.subjects[i]
		for j, part := range parts[i] {
			if err := s.derive(by.policy.derives[j], part, by.cost); err != nil {
				return nil, err
			}
		}
	}
	return s.subjects, nil
}

// derive adds a part of an identifier, or its cost if the part is there already.
func (s *side) derive(p *inForce, part string, cost int64) error {
	if p.read != nil {
		canonical, _, err := p.read(part)
		if err != nil {
			return &limiter.FieldError{Field: "identifier", Detail: err.Error()}
		}
		part = canonical
	}
	for i := range s.subjects {
		if have := &s.subjects[i]; have.policy == p && have.id == part {
			have.cost += cost
			return nil
		}
	}
	s.subjects = append(s.subjects, subject{policy: p, id: part, cost: cost})
	return nil
}

// confirm confirms the last event.
func (s *side) confirm() error {
	if s.receipt == "" {
		return nil
	}
	_, err := s.engine.Confirm(context.Background(), s.receipt)
	return err
}

// decide fills in the decisions of subjects, which are those of demands.
func (s *side) decide(at store.Instant, demands []limiter.Demand, subjects []subject) error {
	s.at = at
	s.sweep()
	if s.receipt = ""; len(subjects) == 1 && !s.confirms {
		d, err := s.engine.Take(context.Background(), demands[0])
		if err == nil && d.Degraded {
			err = store.ErrOverloaded
		}
		subjects[0].decision = d
		return err
	}
	answer, err := s.engine.Do(context.Background(), &limiter.Call{Op: count.OpTake, Demands: demands})
	switch {
	case err != nil:
		return err
	case answer.Degraded:
		return store.ErrOverloaded
	case len(subjects) == 1 && answer.Demands == nil:
		if subjects[0].decision = answer.Decision; answer.Allowed {
			s.receipt = answer.Receipt
		}
		return nil
	case len(answer.Demands) != len(subjects):
		return fmt.Errorf("the engine decided for %d callers, not for %d", len(answer.Demands), len(subjects))
	}
	if answer.Allowed {
		s.receipt = answer.Receipt
	}
	for i := range subjects {
		subjects[i].decision = answer.Demands[i]
	}
	return nil
}

// sweep forgets the callers whose windows are over. It does so after half as many events as there are callers, so that it
// takes less time than the decisions.
func (s *side) sweep() {
	if s.since++; s.since%sweepEvery != 0 {
		return
	}
	if n := s.store.Len(); n > minSwept && s.since >= n/2 {
		s.store.Sweep()
		s.since = 0
	}
}
