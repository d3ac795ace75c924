package limiter

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Overrides are the administrators' overrides, each for one identifier or for all with a prefix, for a while or without
// end. Every instance has all of them in memory.
type Overrides struct {
	*basis
	plans *plans
	known overrides.Set
	news  *signals.News // nil: there is no feed
}

// Set puts o in force for id under policy, in place of an earlier override: on this instance at once, on others within
// a second, and on those that start later. Errors wrap ErrInvalid, ErrUnknownPolicy or, as a StoreError, ErrUnavailable
// and ErrOverloaded. If the StoreError's Recorded is unknown, o may come into force nevertheless.
func (s *Overrides) Set(ctx context.Context, policy string, id keys.Identifier, o demand.Override) (demand.Override, error) {
	p, id, _, err := s.plans.planOf(policy, id)
	if err != nil {
		return demand.Override{}, err
	}
	o.Prefix = ""
	t := p.Of(id)
	return s.set(ctx, p, &t, o)
}

// SetPrefix is Set for all identifiers under policy whose canonical form begins with prefix. An identifier's own override
// and that of a longer prefix take precedence.
func (s *Overrides) SetPrefix(ctx context.Context, policy, prefix string, o demand.Override) (demand.Override, error) {
	t, err := s.ofPrefix(policy, prefix)
	if err != nil {
		return demand.Override{}, err
	}
	o.Prefix = prefix
	return s.set(ctx, t.Plan, &t, o)
}

// ofPrefix returns the target of an override for prefix.
func (s *Overrides) ofPrefix(policy, prefix string) (demand.Target, error) {
	set := s.plans.inForce.Load()
	p := set.byName[policy]
	if p == nil {
		return demand.Target{}, set.unknown()
	}
	if problem := p.Normalize.Form.PrefixProblem(prefix, p.Read); problem != "" {
		return demand.Target{}, &FieldError{Field: "prefix", Detail: problem}
	}
	return demand.Target{Plan: p, Key: s.settings.PrefixKey(policy, prefix)}, nil
}

// set puts o in force for t, under p.
func (s *Overrides) set(ctx context.Context, p *demand.Plan, t *demand.Target, o demand.Override) (demand.Override, error) {
	if err := s.check(p, &o); err != nil {
		return demand.Override{}, err
	}
	if !s.known.Room(t.Key) {
		err := fmt.Errorf("%w: %d overrides are live", store.ErrOverloaded, overrides.MaxLive)
		return demand.Override{}, &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	d := overrides.Details{Policy: p.Name, Prefix: o.Prefix, Kind: o.Kind, Limits: o.Limits, By: o.By}
	if now := s.now(); s.settings.Timing.IsSetBack(s.known.Latest(t.Key), now) {
		d.At = now
	}
	details, err := json.Marshal(&d)
	if err != nil {
		return demand.Override{}, err
	}
	made, err := s.publish(ctx, t, o.Until, string(details))
	if made > 0 {
		o.Made = cmp.Or(d.At, made)
	}
	return o, err
}

// End ends the override of id under policy, if there is one, on all instances. Errors are those of Set.
func (s *Overrides) End(ctx context.Context, policy string, id keys.Identifier) error {
	p, id, _, err := s.plans.planOf(policy, id)
	if err != nil {
		return err
	}
	t := p.Of(id)
	_, err = s.publish(ctx, &t, 0, "")
	return err
}

// EndPrefix is End for the override of a prefix.
func (s *Overrides) EndPrefix(ctx context.Context, policy, prefix string) error {
	t, err := s.ofPrefix(policy, prefix)
	if err != nil {
		return err
	}
	_, err = s.publish(ctx, &t, 0, "")
	return err
}

// Of returns the override by which this instance decides id under policy: that of id, or else that of its longest prefix;
// false if there is none.
func (s *Overrides) Of(policy string, id keys.Identifier) (demand.Override, bool, error) {
	p, id, _, err := s.plans.planOf(policy, id)
	if err != nil {
		return demand.Override{}, false, err
	}
	t := p.Of(id)
	o, ok := s.of(&t, string(id))
	return o, ok, nil
}

// OfPrefix returns the override of a prefix under policy that is in force on this instance, false if there is none.
func (s *Overrides) OfPrefix(policy, prefix string) (demand.Override, bool, error) {
	t, err := s.ofPrefix(policy, prefix)
	if err != nil {
		return demand.Override{}, false, err
	}
	o, ok := s.of(&t, "")
	return o, ok, nil
}

func (s *Overrides) of(t *demand.Target, id string) (demand.Override, bool) {
	o := s.known.Of(t, id, s.now())
	if o == nil {
		return demand.Override{}, false
	}
	return o.Override, true
}

// All returns the overrides in force on this instance: first those without end, then the others by their end.
func (s *Overrides) All() []overrides.Keyed { return s.known.All(s.now()) }

// check returns an error if p can't have the override o.
func (s *Overrides) check(p *demand.Plan, o *demand.Override) error {
	wrong := func(field, format string, args ...any) error {
		return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	rest := time.Duration(0)
	if !o.Stays() {
		rest = o.Until.Sub(s.now())
	}
	switch {
	case !slices.Contains([]policy.OverrideKind{policy.OverrideAllow, policy.OverrideBlock, policy.OverrideLimits}, o.Kind):
		return wrong("kind", "not known: use one of %s, %s, %s", policy.OverrideAllow, policy.OverrideBlock, policy.OverrideLimits)
	case !o.Stays() && (rest < overrides.Shortest || rest > overrides.Longest):
		return wrong("expires_in_ms", "out of range: use %d to %d, or null for an override without end",
			overrides.Shortest.Milliseconds(), overrides.Longest.Milliseconds())
	case o.Kind != policy.OverrideLimits && len(o.Limits) > 0:
		return wrong("limits", "only an override of the kind %q has them: remove them", policy.OverrideLimits)
	case o.Kind == policy.OverrideLimits && len(o.Limits) == 0:
		return wrong("limits", "missing: give at least one limit of the policy by its name")
	}
	for i, l := range o.Limits {
		at := fmt.Sprintf("limits[%d]", i)
		named := func(other demand.LimitOverride) bool { return other.Name == l.Name }
		j := slices.IndexFunc(p.Limits, func(of policy.Limit) bool { return of.Name == l.Name })
		switch {
		case j < 0:
			return wrong(at+".name", "the policy has no such limit: it has %s", strings.Join(limitNames(p), ", "))
		case slices.IndexFunc(o.Limits, named) < i:
			return wrong(at+".name", "an earlier entry has the same name: keep one of them")
		case l.Burst != 0 && p.Limits[j].Algorithm != count.TokenBucket.Name:
			return wrong(at+".burst", "only a %s has a burst: remove it", count.TokenBucket.Name)
		}
		if found := p.Overridden([]demand.LimitOverride{l}).Problems(); len(found) > 0 {
			field := ".limit"
			if l.Burst != 0 && strings.HasSuffix(found[0].Path, ".burst") {
				field = ".burst"
			}
			return wrong(at+field, "%s", found[0].Message)
		}
	}
	return nil
}

func limitNames(p *demand.Plan) (names []string) {
	for i := range p.Limits {
		names = append(names, p.Limits[i].Name)
	}
	return names
}

// publish publishes the override of t, or its end if details is empty, and returns its date. That is later than the date of
// the override that it replaces, whatever the clocks. The news live as long as those of any earlier override may: an
// instance that starts must not find an earlier one alone.
func (s *Overrides) publish(
	ctx context.Context, t *demand.Target, until store.Instant, details string,
) (made store.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.settings.StoreTimeout)
	defer cancel()
	now, err := s.decider.Instant()
	if err != nil { // news dated by a wrong clock might replace later news, or be replaced by earlier ones
		return 0, &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	for _, key := range append([]store.Key{t.Key}, t.OldKeys...) {
		at := max(now, s.known.Latest(key)+1)
		c := &store.Change{ID: s.ids.Next(at), Kind: store.ChangeOverride, Key: key, Until: until, TTL: signals.ChangesLive, Details: details}
		if s.news != nil {
			if err := s.news.Publish(ctx, c); err != nil {
				fate := count.FateOf(err)
				if made != 0 { // the override is already published under another hash key
					fate = count.RecordedUnknown
				}
				return 0, &count.StoreError{Recorded: fate, Err: store.Unavailable(err)}
			}
		}
		s.learn(c)
		if made == 0 {
			made = at
		}
	}
	return made, nil
}

// learn puts the override in c in force, or ends it.
func (s *Overrides) learn(c *store.Change) {
	s.known.Learn(c, s.now())
	s.decider.Changed(c.Key)
}

// override applies the override of id to c, if there is one.
func (m *charger) override(c *demand.Charge, id keys.Identifier) {
	o := m.overrides.Of(&c.Target, string(id), m.plans.settings.Timing.Instant())
	if o == nil {
		return
	}
	if o.Kind == policy.OverrideLimits {
		base := c.Plan
		if c.Plan = o.PlanFor(base, m.plans.newPlans); c.Plan == base {
			return
		}
	}
	c.Override = &o.Override
}
