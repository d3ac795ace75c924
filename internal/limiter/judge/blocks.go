package judge

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Blocks are the blocks of keys that follow denials under policies that block. Each new one is announced to the other
// instances.
type Blocks struct {
	*signals.Blocks
	News *signals.News // nil: there is no feed

	// Made is called with each block that is made here. It may be nil.
	Made func(policy string, key store.Key, until store.Instant, strikes int)

	settings *demand.Settings
	ids      *store.EventIDs
	instant  func() (store.Instant, error) // returns an error if this instance's clock is wrong
}

// NewBlocks returns an empty Blocks. A block is made only while instant returns no error.
func NewBlocks(settings *demand.Settings, ids *store.EventIDs, instant func() (store.Instant, error)) *Blocks {
	known := signals.NewBlocks(signals.MaxBlocks, settings.Timing)
	return &Blocks{Blocks: known, settings: settings, ids: ids, instant: instant}
}

// decide decides c, whose policy blocks, if its key is blocked, and reports whether it did. A record is never blocked, nor
// is a check with a cost of 0.
func (b *Blocks) decide(c *demand.Charge) (decided bool) {
	if c.Op == count.OpRecord || c.Cost == 0 {
		return false
	}
	now := b.settings.Timing.Instant()
	rest := b.Of(c.Key, c.OldKeys, now).Until.Sub(now)
	if rest <= 0 {
		return false
	}
	c.Decision = c.Plan.DenyFor(rest)
	return true
}

// punish blocks the key of c, whose policy blocks, if c is a take that d denies. The take began at asked.
func (b *Blocks) punish(c *demand.Charge, d *count.Decision, asked store.Instant) {
	if c.Op != count.OpTake || d.Allowed {
		return
	}
	now, err := b.instant()
	if err != nil { // the block would end at the wrong time, on all instances
		return
	}
	made, fresh := b.Punish(&c.Plan.Policy, c.Key, c.OldKeys, asked, now)
	if rest := made.Until.Sub(now); rest > 0 {
		d.Outlast(rest)
	}
	if fresh {
		b.News.Announce(&store.Change{
			ID: b.ids.Next(asked), Kind: store.ChangeBlock, Key: c.Key, Until: made.Until, Strikes: made.Strikes,
			TTL: signals.LivesUntil(made.Ends, now),
		})
		if b.Made != nil {
			b.Made(c.Plan.Name, c.Key, made.Until, made.Strikes)
		}
	}
}

// Heard adds the block that c announces. A store may not return c's time to live.
func (b *Blocks) Heard(c *store.Change) {
	now := b.settings.Timing.Instant()
	told := signals.Block{Made: c.ID.Instant(), Until: c.Until, Strikes: max(1, c.Strikes), Ends: c.Until.Add(policy.MaxWindow)}
	if c.TTL > 0 {
		told.Ends = max(c.Until, now.Add(c.TTL))
	}
	b.Learn(c.Key, told, now)
}

// StillTrue reports whether c, a change of this instance, should still be published. It returns false for a block that was
// lifted, or is part of a longer block by another instance.
func (b *Blocks) StillTrue(c *store.Change) bool {
	return c.Kind != store.ChangeBlock || b.Get(c.Key).Until == c.Until
}
