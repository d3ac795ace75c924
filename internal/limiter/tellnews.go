package limiter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// CatchUp learns what others did before this instance started. Run does so as well: who
// calls CatchUp before knows it when it makes its first decision, and gives a receipt for that,
// too, however long the store takes to tell its secret the first time. It must not be called
// while Run runs.
func (e *Engine) CatchUp(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, secretWithin)
	defer cancel()
	_, _ = e.secrets.Keyring(asking) // else the first call that needs it asks
	if e.news == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, signals.CatchUp)
	defer cancel()
	return e.news.Poll(ctx)
}

// secretWithin is how long a start waits for the store to tell its secret: its first compare-and-set may take a
// second or two.
const secretWithin = 5 * time.Second

// reach has news reach as far as the promises of plans do: where some hold over the cluster
// and the feed's own levels within a data centre, what is told in one would be heard in
// another only while nothing keeps it from getting there.
func (e *Engine) reach(plans map[string]*demand.Plan) {
	level := policy.Level("")
	for _, p := range plans {
		compared := p.Cell || p.Guarantee == policy.GuaranteeSerial
		overAll := p.Consistency.Scope() == policy.ScopeCluster || compared && e.settings.Serial.Scope() == policy.ScopeCluster
		if overAll && e.settings.Consistency.Scope() == policy.ScopeDatacenter {
			level = policy.LevelQuorum
		}
	}
	e.news.Reach(level)
}

// publish does what kind says for t on this instance, and tells the others; those that read
// under another hash key, too. Should that fail, they are told later.
func (e *Engine) publish(ctx context.Context, kind store.ChangeKind, t *demand.Target) error {
	now := e.now()
	_, clockErr := e.decider.Instant()
	var failed error
	for _, key := range append([]store.Key{t.Key}, t.Old...) {
		c := &store.Change{ID: e.ids.Next(now), Kind: kind, Key: key, TTL: clock.WholeSeconds(min(t.Plan.ResetTTL, signals.NewsLives))}
		e.decider.Changed(key)
		lifted := signals.Block{}
		if kind == store.ChangeReset {
			lifted = e.blocks.Lift(key, e.resetBy(c))
			c.TTL = max(c.TTL, signals.LivesUntil(lifted.Ends, now))
		}
		switch {
		case e.news == nil:
		case !e.InMemory():
			err := clockErr
			if err == nil {
				err = e.news.Publish(ctx, c)
			}
			if err != nil {
				failed = errors.Join(failed, err)
				e.news.AnnounceAgain(c)
			}
		case lifted != signals.Block{}: // there is nobody to tell but who reads the feed when it is started anew
			e.spread(c)
		}
	}
	return failed
}

// tellReset tells every instance that t was reset. The error is a StoreError.
func (e *Engine) tellReset(ctx context.Context, t *demand.Target) error {
	if err := e.publish(ctx, store.ChangeReset, t); err != nil {
		return &count.StoreError{Recorded: count.RecordedUnknown, Err: fmt.Errorf(
			"%w: what was counted is forgotten, but other instances may block the identifier until they are told: %w", store.ErrUnavailable, err)}
	}
	return nil
}

// spread publishes c in the background, if there is a feed.
func (e *Engine) spread(c *store.Change) {
	if e.news != nil {
		e.news.Announce(c)
	}
}

// heard acts on a change that another instance made, or this one before it was started
// anew. To act on one twice changes nothing.
func (e *Engine) heard(ctx context.Context, c *store.Change) {
	switch c.Kind {
	case store.ChangeReset:
		e.heardReset(ctx, c)
	case store.ChangeRefund:
		e.decider.Changed(c.Key)
	case store.ChangeBlock:
		e.blocks.Learn(c.Key, e.blockIn(c), e.now())
	case store.ChangeOverride:
		e.learnOverride(c)
	case store.ChangeHold:
		e.heardHold(ctx, c)
	}
}

func (e *Engine) heardReset(ctx context.Context, c *store.Change) {
	at, now := e.resetBy(c), e.now()
	e.decider.Changed(c.Key)
	lifted := e.blocks.Lift(c.Key, at)
	if lifted.Mine && lifted.Ends > c.ID.Instant().Add(c.TTL) {
		// Who reset the key did not know of this block yet: whoever starts anew must not
		// find the news of the block alone.
		e.spread(&store.Change{ID: e.ids.Next(now), Kind: store.ChangeReset, Key: c.Key, TTL: signals.LivesUntil(lifted.Ends, now)})
	}
	if e.local != nil {
		e.local.Forget(ctx, c.Key, at, max(c.TTL, time.Second))
	}
}

// resetBy returns the instant up to which c, a reset, forgets: whatever was dated before
// it, by any clock.
func (e *Engine) resetBy(c *store.Change) store.Instant {
	return c.ID.Instant().Add(2 * e.settings.ClockTolerance)
}

// blockIn returns the block that c tells of. A store may not tell c's time to live.
func (e *Engine) blockIn(c *store.Change) signals.Block {
	b := signals.Block{Made: c.ID.Instant(), Until: c.Until, Strikes: max(1, c.Strikes), Ends: c.Until.Add(policy.MaxWindow)}
	if c.TTL > 0 {
		b.Ends = max(c.Until, e.now().Add(c.TTL))
	}
	return b
}

// stillTrue reports whether c, a change of this instance, is worth telling: a block may
// have been lifted, or be part of a longer one that others told.
func (e *Engine) stillTrue(c *store.Change) bool {
	return c.Kind != store.ChangeBlock || e.blocks.Get(c.Key).Until == c.Until
}
