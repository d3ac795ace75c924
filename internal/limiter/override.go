package limiter

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Override decides one identifier under one policy otherwise, until a moment.
type Override struct {
	Kind   policy.OverrideKind
	Limits []LimitOverride // of OverrideLimits: 1 to MaxLimits of the policy's limits, none twice
	Until  store.Instant
	By     string // who made it, by a name that the caller gives; empty: nobody says

	Made store.Instant // when it was made; SetOverride fills it in
}

// LimitOverride is what a limit of a policy is in its place. Algorithm and window stay.
type LimitOverride struct {
	Name  string `json:"name"`
	Limit int64  `json:"limit"`
	Burst int64  `json:"burst,omitempty"` // of a token bucket; 0: the policy's or, where that is its limit, Limit
}

// Bounds of overrides.
const (
	// MinOverride is the shortest: other instances learn of it within a second.
	MinOverride = time.Second
	// MaxOverride is how far back an instance reads the news when it starts.
	MaxOverride = signals.ChangesLive
	// MaxOverrides bounds those that are live: each is some 300 bytes, and one of
	// OverrideLimits that is asked for some 3 KiB.
	MaxOverrides = 1 << 15
)

// overrideDetails are the details of a ChangeOverride: none for one that ends what was
// there.
type overrideDetails struct {
	Policy string              `json:"policy"`
	Kind   policy.OverrideKind `json:"kind"`
	Limits []LimitOverride     `json:"limits,omitempty"`
	By     string              `json:"by,omitempty"`
	At     store.Instant       `json:"at,omitempty"` // when it was made, if its ID says more: it replaces one by a clock that was ahead
}

// SetOverride puts o in force for id under policy, in place of an earlier one: on this
// instance at once, on others within a second, and on those that start later. Errors wrap
// ErrInvalid, ErrUnknownPolicy or, as a StoreError, ErrUnavailable and ErrOverloaded; after
// one whose Recorded is unknown, o may come into force all the same.
func (e *Engine) SetOverride(ctx context.Context, policy string, id keys.Identifier, o Override) (Override, error) {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return Override{}, err
	}
	if err := e.checkOverride(p, &o); err != nil {
		return Override{}, err
	}
	t := p.of(id)
	if !e.overrides.room(t.key) {
		err := fmt.Errorf("%w: %d overrides are live", store.ErrOverloaded, MaxOverrides)
		return Override{}, &StoreError{Recorded: count.RecordedNo, Err: err}
	}
	d := overrideDetails{Policy: p.Name, Kind: o.Kind, Limits: o.Limits, By: o.By}
	if now := e.now(); e.opts.timing.IsSetBack(e.overrides.latest(t.key), now) {
		d.At = now
	}
	details, err := json.Marshal(&d)
	if err != nil {
		return Override{}, err
	}
	made, err := e.publishOverride(ctx, &t, o.Until, string(details))
	if made > 0 {
		o.Made = cmp.Or(d.At, made)
	}
	return o, err
}

// EndOverride ends the override of id under policy, if there is one, everywhere. Errors
// are those of SetOverride.
func (e *Engine) EndOverride(ctx context.Context, policy string, id keys.Identifier) error {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return err
	}
	t := p.of(id)
	_, err = e.publishOverride(ctx, &t, 0, "")
	return err
}

// Override returns the override of id under policy that is in force on this instance;
// false: there is none.
func (e *Engine) Override(policy string, id keys.Identifier) (Override, bool, error) {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return Override{}, false, err
	}
	t := p.of(id)
	o := e.overrides.of(&t, e.now())
	if o == nil {
		return Override{}, false, nil
	}
	return o.Override, true, nil
}

// KeyOverride is an override and whose it is.
type KeyOverride struct {
	Key    store.Key
	Policy string
	Override
}

// Overrides returns those that are in force on this instance, the one that ends first
// first.
func (e *Engine) Overrides() []KeyOverride { return e.overrides.all(e.now()) }

// checkOverride refuses an override that p can't have.
func (e *Engine) checkOverride(p *plan, o *Override) error {
	wrong := func(field, format string, args ...any) error {
		return &FieldError{Field: field, Detail: fmt.Sprintf(format, args...)}
	}
	rest := o.Until.Sub(e.now())
	switch {
	case !slices.Contains([]policy.OverrideKind{policy.OverrideAllow, policy.OverrideBlock, policy.OverrideLimits}, o.Kind):
		return wrong("kind", "not known: use one of %s, %s, %s", policy.OverrideAllow, policy.OverrideBlock, policy.OverrideLimits)
	case rest < MinOverride || rest > MaxOverride:
		return wrong("expires_in_ms", "out of range: use %d to %d", MinOverride.Milliseconds(), MaxOverride.Milliseconds())
	case o.Kind != policy.OverrideLimits && len(o.Limits) > 0:
		return wrong("limits", "only an override of the kind %q has them: remove them", policy.OverrideLimits)
	case o.Kind == policy.OverrideLimits && len(o.Limits) == 0:
		return wrong("limits", "missing: give at least one limit of the policy by its name")
	}
	for i, l := range o.Limits {
		at := fmt.Sprintf("limits[%d]", i)
		named := func(other LimitOverride) bool { return other.Name == l.Name }
		j := slices.IndexFunc(p.Limits, func(of policy.Limit) bool { return of.Name == l.Name })
		switch {
		case j < 0:
			return wrong(at+".name", "the policy has no such limit: it has %s", strings.Join(p.limitNames(), ", "))
		case slices.IndexFunc(o.Limits, named) < i:
			return wrong(at+".name", "there twice: keep one of them")
		case l.Burst != 0 && p.Limits[j].Algorithm != count.TokenBucket.Name:
			return wrong(at+".burst", "only a %s has a burst: remove it", count.TokenBucket.Name)
		}
		if found := p.overridden([]LimitOverride{l}).Problems(); len(found) > 0 {
			field := ".limit"
			if l.Burst != 0 && strings.HasSuffix(found[0].Path, ".burst") {
				field = ".burst"
			}
			return wrong(at+field, "%s", found[0].Message)
		}
	}
	return nil
}

func (p *plan) limitNames() (names []string) {
	for i := range p.Limits {
		names = append(names, p.Limits[i].Name)
	}
	return names
}

// overridden returns p with other limits, without those that it has not.
func (p *plan) overridden(limits []LimitOverride) policy.Policy {
	other := p.Policy
	other.Limits = slices.Clone(p.Limits)
	if p.Guarantee == policy.GuaranteeSerial {
		other.Consistency = policy.Consistency{} // the plan has the server's, which such a policy can't give itself
	}
	for i := range other.Limits {
		l := &other.Limits[i]
		j := slices.IndexFunc(limits, func(o LimitOverride) bool { return o.Name == l.Name })
		if j < 0 {
			continue
		}
		switch {
		case limits[j].Burst != 0:
			l.Burst = limits[j].Burst
		case l.Burst == l.Limit: // it was the default
			l.Burst = 0
		}
		l.Limit = limits[j].Limit
	}
	return other
}

// publishOverride tells every instance of what overrides t from now on, and returns when
// that was made. It is dated after what it replaces, whichever clock dated that, and is
// told for as long as any earlier one may be: who starts must not find an earlier one
// alone.
func (e *Engine) publishOverride(ctx context.Context, t *target, until store.Instant, details string) (made store.Instant, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	now, err := e.instant()
	if err != nil { // news by a clock that is wrong would stand above later ones, or below earlier ones
		return 0, &StoreError{Recorded: count.RecordedNo, Err: err}
	}
	for _, key := range append([]store.Key{t.key}, t.old...) {
		at := max(now, e.overrides.latest(key)+1)
		c := &store.Change{ID: e.ids.Next(at), Kind: store.ChangeOverride, Key: key, Until: until, TTL: signals.ChangesLive, Details: details}
		if e.news != nil {
			if err := e.news.Publish(ctx, c); err != nil {
				fate := fateOf(err)
				if made != 0 { // it is told of under another hash key
					fate = count.RecordedUnknown
				}
				return 0, &StoreError{Recorded: fate, Err: unavailable(err)}
			}
		}
		e.learnOverride(c)
		if made == 0 {
			made = at
		}
	}
	return made, nil
}

// learnOverride puts the override that c tells of in force, or its end.
func (e *Engine) learnOverride(c *store.Change) {
	e.overrides.learn(c, e.now())
	e.dropHints(c.Key)
}

// unavailable returns err as one that wraps ErrUnavailable, or what a store makes of it.
func unavailable(err error) error {
	if errors.Is(err, store.ErrUnavailable) || errors.Is(err, store.ErrOverloaded) {
		return err
	}
	return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
}

// override has c decided as its key's override says, if there is one.
func (e *Engine) override(c *charge) {
	if !e.overrides.any() {
		return
	}
	o := e.overrides.of(&c.target, e.now())
	if o != nil && o.Kind == policy.OverrideLimits {
		base := c.plan
		if c.plan = o.planFor(e, base); c.plan == base {
			return
		}
	}
	c.over = o
}

// tellOverride says in c's decision which override decided it.
func (c *charge) tellOverride() {
	if c.over != nil && (c.over.Kind == policy.OverrideLimits || c.isUnasked()) {
		c.decision.Override = c.over.Kind
	}
}

// isUnasked reports whether c is what an override to allow or to block decides: a record is
// counted all the same, and who looks at what is counted is told.
func (c *charge) isUnasked() bool {
	return c.op != count.OpRecord && c.cost > 0 && c.plan.Mode != policy.ModeOff
}

// decideOverridden decides c by an override to allow or to block it, if there is one.
func (e *Engine) decideOverridden(c *charge) (decided bool) {
	switch {
	case c.over == nil || c.over.Kind == policy.OverrideLimits || !c.isUnasked():
		return false
	case c.over.Kind == policy.OverrideAllow:
		c.decision = c.plan.Unasked()
	default:
		c.decision = c.plan.denyFor(max(0, c.over.Until.Sub(e.now())))
		c.decision.ForgetUsed()
	}
	return true
}
