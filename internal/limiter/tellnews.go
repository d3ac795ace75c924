package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
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
func (ps *plans) reach(plans map[string]*demand.Plan) {
	level := policy.Level("")
	for _, p := range plans {
		compared := p.Cell || p.Guarantee == policy.GuaranteeSerial
		overAll := p.Consistency.Scope() == policy.ScopeCluster || compared && ps.settings.Serial.Scope() == policy.ScopeCluster
		if overAll && ps.settings.Consistency.Scope() == policy.ScopeDatacenter {
			level = policy.LevelQuorum
		}
	}
	ps.news.Reach(level)
}

// teller tells other instances what this one did to keys.
type teller struct {
	*basis
	blocks *judge.Blocks
	news   *signals.News // nil: there is no feed

	unblocked func(policy string, key store.Key) // nil: nobody learns of that
}

// publish does what kind says for t on this instance, and tells the others; those that read
// under another hash key, too. Should that fail, they are told later.
func (n *teller) publish(ctx context.Context, kind store.ChangeKind, t *demand.Target) error {
	now := n.now()
	_, clockErr := n.decider.Instant()
	var failed error
	unblocks := false
	for _, key := range append([]store.Key{t.Key}, t.Old...) {
		c := &store.Change{ID: n.ids.Next(now), Kind: kind, Key: key, TTL: clock.WholeSeconds(min(t.Plan.ResetTTL, signals.NewsLives))}
		n.decider.Changed(key)
		lifted := signals.Block{}
		if kind == store.ChangeReset {
			lifted = n.blocks.Lift(key, n.resetBy(c))
			unblocks = unblocks || lifted.Until > now
			c.TTL = max(c.TTL, signals.LivesUntil(lifted.Ends, now))
		}
		switch {
		case n.news == nil:
		case !n.inMemory:
			err := clockErr
			if err == nil {
				err = n.news.Publish(ctx, c)
			}
			if err != nil {
				failed = errors.Join(failed, err)
				n.news.AnnounceAgain(c)
			}
		case lifted != signals.Block{}: // there is nobody to tell but who reads the feed when it is started anew
			n.news.Announce(c)
		}
	}
	if unblocks && n.unblocked != nil {
		n.unblocked(t.Plan.Name, t.Key)
	}
	return failed
}

// gaveBack tells the others that something of t was given back in the store only now: what they read before may have it.
func (n *teller) gaveBack(ctx context.Context, t *demand.Target) {
	_ = n.publish(ctx, store.ChangeRefund, t) // it is told again later
}

// heard acts on a change that another instance made, or this one before it was started
// anew. To act on one twice changes nothing.
func (e *Engine) heard(ctx context.Context, c *store.Change) {
	switch c.Kind {
	case store.ChangeReset:
		e.resets.heard(ctx, c)
	case store.ChangeRefund:
		e.decider.Changed(c.Key)
	case store.ChangeBlock:
		e.judge.Blocks.Heard(c)
	case store.ChangeOverride:
		e.Overrides.learn(c)
	case store.ChangeHold:
		e.reservations.heard(ctx, c)
	}
}
