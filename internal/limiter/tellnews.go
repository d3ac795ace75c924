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

// CatchUp reads the news from before this instance started. Run does so as well, but after CatchUp the first decision
// already has them. CatchUp also reads the store's secret, so that the first decision has a receipt even if the first read
// of the secret is slow. It must not be called while Run runs.
func (e *Engine) CatchUp(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, secretWithin)
	defer cancel()
	_, _ = e.secrets.Keyring(asking) // if it fails, the first call that needs the secret reads it
	if e.news == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(ctx, signals.CatchUp)
	defer cancel()
	return e.news.Poll(ctx)
}

// secretWithin is the timeout of CatchUp for the store's secret: the first compare-and-set may take a second or two.
const secretWithin = 5 * time.Second

// setNewsLevel sets the level of news by the scope of the guarantees of plans. If a guarantee holds in the whole cluster, but
// the feed's own levels only within a data centre, news are read and written with QUORUM. Otherwise other data centres would
// get them only while replication between them works.
func (ps *plans) setNewsLevel(plans map[string]*demand.Plan) {
	level := policy.Level("")
	for _, p := range plans {
		overAll := p.Consistency.Scope() == policy.ScopeCluster || p.Cell && ps.settings.Serial.Scope() == policy.ScopeCluster
		if overAll && ps.settings.Consistency.Scope() == policy.ScopeDatacenter {
			level = policy.LevelQuorum
		}
	}
	ps.news.Reach(level)
}

// teller publishes this instance's changes to keys.
type teller struct {
	*basis
	blocks *judge.Blocks
	news   *signals.News // nil: there is no feed

	unblocked func(policy string, key store.Key) // may be nil
}

// publish publishes a change of kind to t, which this instance has made, under all hash keys. If that fails, the change is
// published later. For a reset, publish also lifts the key's blocks on this instance.
func (n *teller) publish(ctx context.Context, kind store.ChangeKind, t *demand.Target) error {
	now := n.now()
	_, clockErr := n.decider.Instant()
	var failed error
	unblocks := false
	for _, key := range append([]store.Key{t.Key}, t.OldKeys...) {
		c := &store.Change{ID: n.ids.Next(now), Kind: kind, Key: key, TTL: clock.WholeSeconds(min(t.Plan.ResetTTL, signals.NewsLives))}
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
		case lifted != signals.Block{}: // only this instance needs the news, when it restarts
			n.news.Announce(c)
		}
	}
	if unblocks && n.unblocked != nil {
		n.unblocked(t.Plan.Name, t.Key)
	}
	return failed
}

// gaveBack informs the other instances that units of t were given back in the store: states that they read before may have
// these units.
func (n *teller) gaveBack(ctx context.Context, t *demand.Target) {
	_ = n.publish(ctx, store.ChangeRefund, t) // a failure is repeated later
}

// heard acts on a change that another instance made, or this one before it restarted. It may be called again with the same
// change.
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
