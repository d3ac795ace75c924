package judge

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Blocks are those of keys, which follow denials under policies that block. Others are told of each, and learn of it.
type Blocks struct {
	*signals.Blocks
	News *signals.News // nil: there is no feed

	settings *demand.Settings
	ids      *store.EventIDs
	instant  func() (store.Instant, error) // the error says that this instance's clock is wrong
}

// NewBlocks returns none. Each is made by a clock that instant says is right.
func NewBlocks(settings *demand.Settings, ids *store.EventIDs, instant func() (store.Instant, error)) *Blocks {
	known := signals.NewBlocks(signals.MaxBlocks, settings.Timing)
	return &Blocks{Blocks: known, settings: settings, ids: ids, instant: instant}
}

// decide decides c, under a policy that blocks, by a block, if there is one. A record is never blocked, nor is
// looking at what is counted, which costs nothing.
func (b *Blocks) decide(c *demand.Charge) (decided bool) {
	if c.Op == count.OpRecord || c.Cost == 0 {
		return false
	}
	now := b.settings.Timing.Instant()
	rest := b.Of(c.Key, c.Old, now).Until.Sub(now)
	if rest <= 0 {
		return false
	}
	c.Decision = c.Plan.DenyFor(rest)
	return true
}

// punish blocks the key of c, under a policy that blocks, if d, of a take that was asked at asked, denies it.
func (b *Blocks) punish(c *demand.Charge, d *count.Decision, asked store.Instant) {
	if c.Op != count.OpTake || d.Allowed {
		return
	}
	now, err := b.instant()
	if err != nil { // by such a clock it would end at the wrong time, everywhere
		return
	}
	made, fresh := b.Punish(&c.Plan.Policy, c.Key, c.Old, asked, now)
	if rest := made.Until.Sub(now); rest > 0 {
		d.Outlast(rest)
	}
	if fresh {
		b.News.Announce(&store.Change{
			ID: b.ids.Next(asked), Kind: store.ChangeBlock, Key: c.Key, Until: made.Until, Strikes: made.Strikes,
			TTL: signals.LivesUntil(made.Ends, now),
		})
	}
}

// Heard learns of the block that c tells of. A store may not tell c's time to live.
func (b *Blocks) Heard(c *store.Change) {
	now := b.settings.Timing.Instant()
	told := signals.Block{Made: c.ID.Instant(), Until: c.Until, Strikes: max(1, c.Strikes), Ends: c.Until.Add(policy.MaxWindow)}
	if c.TTL > 0 {
		told.Ends = max(c.Until, now.Add(c.TTL))
	}
	b.Learn(c.Key, told, now)
}

// StillTrue reports whether c, a change of this instance, is worth telling: a block may
// have been lifted, or be part of a longer one that others told.
func (b *Blocks) StillTrue(c *store.Change) bool {
	return c.Kind != store.ChangeBlock || b.Get(c.Key).Until == c.Until
}
