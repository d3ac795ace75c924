package limiter

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// blocks reports whether the policy's denials block.
func (p *plan) blocks() bool { return p.BlockFor > 0 && p.Mode == policy.ModeEnforce }

// decideBlocked decides c by a block, if there is one. A record is never blocked, nor is
// looking at what is counted, which costs nothing.
func (e *Engine) decideBlocked(c *charge) (decided bool) {
	if !c.plan.blocks() || c.op == count.OpRecord || c.cost == 0 {
		return false
	}
	now := e.now()
	rest := e.blocks.Of(c.key, c.old, now).Until.Sub(now)
	if rest <= 0 {
		return false
	}
	c.decision = c.plan.denyFor(rest)
	return true
}

// denyFor returns the decision to deny for as long as a block lasts, without having
// asked anyone what is counted: as if every limit were reached.
func (p *plan) denyFor(rest time.Duration) count.Decision {
	var d count.Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		r, v := &p.Rules[i], &limits[i].Verdict
		*v = count.Verdict{Used: r.Capacity, ResetAfter: rest, RetryAfter: rest}
		if r.Limit.Limit == 0 {
			v.RetryAfter = count.Never
		}
	}
	d.Blocked = true
	d.Conclude()
	return d
}

// asking returns the instant that a block is dated by which the decision that is about
// to be made may end; 0 for a policy that does not block.
func (e *Engine) asking(p *plan) store.Instant {
	if !p.blocks() {
		return 0
	}
	return e.now()
}

// punish blocks the key of c if d, of a take that was asked at asked, denies it.
func (e *Engine) punish(c *charge, d *count.Decision, asked store.Instant) {
	if !c.plan.blocks() || c.op != count.OpTake || d.Allowed {
		return
	}
	now, err := e.instant()
	if err != nil { // by such a clock it would end at the wrong time, everywhere
		return
	}
	made, fresh := e.blocks.Punish(&c.plan.Policy, c.key, c.old, asked, now)
	if rest := made.Until.Sub(now); rest > 0 {
		d.Outlast(rest)
	}
	if fresh {
		e.spread(&store.Change{
			ID: e.ids.Next(asked), Kind: store.ChangeBlock, Key: c.key, Until: made.Until, Strikes: made.Strikes,
			TTL: signals.LivesUntil(made.Ends, now),
		})
	}
}

// askInVain asks for charges of a call that a block on another one denies: nothing of
// them is counted, except where denied attempts are.
func (e *Engine) askInVain(ctx context.Context, charges []charge) {
	for i := range charges {
		c := &charges[i]
		if c.op = c.opIf(true); c.op == count.OpCheck {
			c.hold, c.id = 0, store.EventID{}
		}
	}
	for _, op := range []count.Op{count.OpCheck, count.OpTake} {
		var alike []charge
		var at []int
		for i := range charges {
			if charges[i].op == op {
				alike, at = append(alike, charges[i]), append(at, i)
			}
		}
		if len(alike) > 0 {
			e.askAll(ctx, alike)
		}
		for j, i := range at {
			charges[i] = alike[j]
		}
	}
}
