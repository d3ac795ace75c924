package limiter

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// decideBlocked decides c by a block, if there is one. A record is never blocked, nor is
// looking at what is counted, which costs nothing.
func (e *Engine) decideBlocked(c *demand.Charge) (decided bool) {
	if !c.Plan.Blocks() || c.Op == count.OpRecord || c.Cost == 0 {
		return false
	}
	now := e.now()
	rest := e.blocks.Of(c.Key, c.Old, now).Until.Sub(now)
	if rest <= 0 {
		return false
	}
	c.Decision = c.Plan.DenyFor(rest)
	return true
}

// asking returns the instant that a block is dated by which the decision that is about
// to be made may end; 0 for a policy that does not block.
func (e *Engine) asking(p *demand.Plan) store.Instant {
	if !p.Blocks() {
		return 0
	}
	return e.now()
}

// punish blocks the key of c if d, of a take that was asked at asked, denies it.
func (e *Engine) punish(c *demand.Charge, d *count.Decision, asked store.Instant) {
	if !c.Plan.Blocks() || c.Op != count.OpTake || d.Allowed {
		return
	}
	now, err := e.decider.Instant()
	if err != nil { // by such a clock it would end at the wrong time, everywhere
		return
	}
	made, fresh := e.blocks.Punish(&c.Plan.Policy, c.Key, c.Old, asked, now)
	if rest := made.Until.Sub(now); rest > 0 {
		d.Outlast(rest)
	}
	if fresh {
		e.spread(&store.Change{
			ID: e.ids.Next(asked), Kind: store.ChangeBlock, Key: c.Key, Until: made.Until, Strikes: made.Strikes,
			TTL: signals.LivesUntil(made.Ends, now),
		})
	}
}

// askInVain asks for charges of a call that a block on another one denies: nothing of
// them is counted, except where denied attempts are.
func (e *Engine) askInVain(ctx context.Context, charges []demand.Charge) {
	for i := range charges {
		c := &charges[i]
		if c.Op = c.OpIf(true); c.Op == count.OpCheck {
			c.Hold, c.ID = 0, store.EventID{}
		}
	}
	for _, op := range []count.Op{count.OpCheck, count.OpTake} {
		var alike []demand.Charge
		var at []int
		for i := range charges {
			if charges[i].Op == op {
				alike, at = append(alike, charges[i]), append(at, i)
			}
		}
		if len(alike) > 0 {
			e.decider.DecideAll(ctx, alike)
		}
		for j, i := range at {
			charges[i] = alike[j]
		}
	}
}
