package limiter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
)

// record is one call as its client saw it, with times by the true clock.
type record struct {
	client, instance int
	began, ended     time.Duration
	call             limiter.Call
	refund           string         // the receipt that was given back; empty: none was
	confirm          string         // the receipt that was confirmed; empty: none was
	reset            limiter.Demand // what was forgotten; zero: nothing
	answer           limiter.Answer
	err              error
	lost             bool // the process died before it answered
	stood            bool // the process stood still meanwhile
}

// String tells what a reader of a failure wants to know.
func (r *record) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%12v–%-12v client %d to %d: %s", r.began, r.ended, r.client, r.instance, r.call.Op)
	if r.refund != "" {
		fmt.Fprint(&b, "refund")
	}
	if r.confirm != "" {
		fmt.Fprint(&b, "confirm")
	}
	if r.reset.Policy != "" {
		fmt.Fprintf(&b, "reset %s/%s", r.reset.Policy, string(r.reset.Identifier))
	}
	for _, d := range r.call.Demands {
		fmt.Fprintf(&b, " %s/%s×%d", d.Policy, string(d.Identifier), max(1, d.Cost))
	}
	if r.call.IdempotencyKey != "" {
		fmt.Fprintf(&b, " (key %s)", r.call.IdempotencyKey)
	}
	if r.call.Reserve > 0 {
		fmt.Fprintf(&b, " (reserve %v)", r.call.Reserve)
	}
	if r.call.Reservation != "" {
		b.WriteString(" (settle)")
	}
	switch {
	case r.lost:
		b.WriteString(" → no answer")
	case r.err != nil:
		fmt.Fprintf(&b, " → %s", strings.ReplaceAll(r.err.Error(), "\n", ": "))
	default:
		a := &r.answer
		fmt.Fprintf(&b, " → allowed %v, used %d, recorded %s, replayed %v", a.Allowed, a.Used, a.Recorded, a.Replayed)
		if at := limiter.DatedAt(&a.Decision); at != 0 {
			fmt.Fprintf(&b, ", dated %s", at.Time().Format("05.000"))
		}
	}
	if r.stood {
		b.WriteString(" (stood still)")
	}
	return b.String()
}

// recorded says what the client knows of whether its units were counted.
func (r *record) recorded() count.Recorded {
	var failed *count.StoreError
	switch {
	case r.lost:
		return count.RecordedUnknown
	case errors.As(r.err, &failed):
		return failed.Recorded
	case r.err != nil:
		return count.RecordedNo
	}
	return r.answer.Recorded
}

// passed reports whether the client was let through.
func (r *record) passed() bool { return !r.lost && r.err == nil && r.answer.Allowed }

// client calls instances, one call after the other.
type client struct {
	world *world
	n     int
	rng   *rand.Rand
	calls int // made so far

	open []*record // calls with an idempotency key, and reservations, to come back to
}

func (c *client) run() {
	for c.pause(); c.world.cluster.now() < c.world.scenario.lasts; c.pause() {
		c.calls++
		c.world.scenario.act(c)
	}
}

// pause waits a while before the next call.
func (c *client) pause() {
	time.Sleep(time.Duration(c.rng.ExpFloat64() * float64(c.world.scenario.thinks)))
}

// instance returns one that is alive, or was a moment ago.
func (c *client) instance() *process {
	for {
		if i := c.world.instances[c.rng.IntN(len(c.world.instances))]; !i.isDead() {
			return i
		}
	}
}

// do makes a call of any instance and remembers it. Now and then the client hangs up
// before it is answered.
func (c *client) do(call limiter.Call) *record {
	return c.ask(&record{call: call}, func(ctx context.Context, e *limiter.Engine) (limiter.Answer, error) {
		return e.Do(ctx, &call)
	})
}

func (c *client) ask(r *record, do func(context.Context, *limiter.Engine) (limiter.Answer, error)) *record {
	i := c.instance()
	ctx, cancel := context.Background(), func() {}
	if c.rng.IntN(30) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(c.rng.Int64N(int64(timeout/4))))
	}
	defer cancel()
	r.client, r.instance, r.began = c.n, i.n, c.world.cluster.now()
	r.answer, r.err = do(ctx, i.engine)
	i.stand()
	r.ended, r.lost = c.world.cluster.now(), i.isDead()
	r.stood = i.stoodStill(r.began, r.ended)
	c.world.mu.Lock()
	defer c.world.mu.Unlock()
	c.world.history = append(c.world.history, r)
	return r
}

// demand returns a demand of policy for somebody whom others call for, too.
func (c *client) demand(policy string) limiter.Demand {
	d := limiter.Demand{Policy: policy, Identifier: "hot", Cost: 1}
	if c.world.scenario.costs && c.rng.IntN(3) == 0 {
		d.Cost += c.rng.Int64N(2)
	}
	if c.rng.IntN(8) == 0 {
		d.Identifier = "other"
	}
	return d
}

// hammer takes, checks now and then, and records where the scenario does.
func hammer(c *client) {
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{c.demand("p")}}
	switch n := c.rng.IntN(20); {
	case n == 0:
		call.Op = count.OpCheck
	case n == 1 && c.world.scenario.records:
		call.Op = count.OpRecord
	}
	c.do(call)
}

// forget is hammer, and resets now and then.
func forget(c *client) {
	if c.rng.IntN(12) > 0 {
		hammer(c)
		return
	}
	d := c.demand("p")
	d.Cost = 0
	c.ask(&record{reset: d}, func(ctx context.Context, e *limiter.Engine) (limiter.Answer, error) {
		return limiter.Answer{}, e.Reset(ctx, d.Policy, d.Identifier)
	})
}

// insist takes or records under an idempotency key, and repeats what was not answered,
// and now and then what was.
func insist(c *client) {
	if n := len(c.open); n > 0 && c.rng.IntN(3) > 0 {
		call := c.open[c.rng.IntN(n)].call
		c.do(call)
		return
	}
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{c.demand("p")}, IdempotencyKey: fmt.Sprintf("%d.%d", c.n, c.calls)}
	if c.world.scenario.records && c.rng.IntN(4) == 0 {
		call.Op = count.OpRecord
	}
	r := c.do(call)
	for tries := 0; tries < 4 && r.recorded() != count.RecordedYes; tries++ {
		time.Sleep(time.Duration(c.rng.Int64N(int64(2 * timeout))))
		r = c.do(call)
	}
	c.open = append(c.open, r)
}

// change takes and gives back, reserves, and settles what it reserved or lets it end.
func change(c *client) {
	switch n := len(c.open); {
	case n > 0 && c.rng.IntN(2) == 0:
		c.comeBack(c.open[c.rng.IntN(n)])
	case c.rng.IntN(2) == 0:
		hold := once.MinReserve + time.Duration(c.rng.IntN(2000))*time.Millisecond
		c.keep(c.do(limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{c.demand("p")}, Reserve: hold}))
	default:
		c.keep(c.do(limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{c.demand("p")}}))
	}
}

// keep remembers what can be come back to.
func (c *client) keep(r *record) {
	if r.passed() && (r.answer.Receipt != "" || r.answer.Reservation != "") {
		c.open = append(c.open, r)
	}
}

// comeBack settles a reservation or refunds it or a receipt, perhaps again. The cost is drawn from no stream, so that
// earlier seeds give the schedules that they gave.
func (c *client) comeBack(r *record) {
	receipt := r.answer.Receipt
	if receipt == "" && c.calls%7 > 0 {
		d := r.call.Demands[0]
		d.Cost = []int64{d.Cost, d.Cost, d.Cost + 1, d.Cost + 2, 1, 1, limiter.CostNothing}[c.calls%7]
		c.keep(c.do(limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{d}, Reservation: r.answer.Reservation}))
		return
	}
	receipt = cmp.Or(receipt, r.answer.Reservation)
	c.ask(&record{refund: receipt}, func(ctx context.Context, e *limiter.Engine) (limiter.Answer, error) {
		return limiter.Answer{}, e.Refund(ctx, receipt)
	})
}

// takeBoth takes of two policies at once.
func takeBoth(c *client) {
	d := c.demand("p")
	other := limiter.Demand{Policy: "q", Identifier: d.Identifier, Cost: d.Cost}
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{d, other}}
	if c.world.scenario.keyed && c.rng.IntN(2) == 0 {
		call.IdempotencyKey = fmt.Sprintf("%d.%d", c.n, c.calls)
		for tries := 0; tries < 4 && c.do(call).recorded() == count.RecordedUnknown; tries++ {
			time.Sleep(time.Duration(c.rng.Int64N(int64(2 * timeout))))
		}
		return
	}
	c.do(call)
}
