package inprocess

import (
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func engineCall(c *client.Call) limiter.Call {
	call := limiter.Call{
		Op: count.Op(c.Op), Demands: make([]limiter.Demand, len(c.Demands)),
		IdempotencyKey: c.IdempotencyKey, Reserve: c.Reserve, Reservation: c.Reservation, Cost: c.Cost,
	}
	if c.Op == client.OpCheck && c.Reserve == 0 { // a repetition does no harm
		call.IdempotencyKey = ""
	}
	for i, d := range c.Demands {
		call.Demands[i] = limiter.Demand{Policy: d.Policy, Identifier: keys.Identifier(d.Identifier), Cost: d.Cost, Limit: d.Limit}
	}
	return call
}

// callError returns p as the error of call.
func callError(call *client.Call, p *api.Problem) *client.CallError {
	recorded := client.Recorded(p.Recorded)
	if call.Op == client.OpCheck && call.Reserve == 0 || recorded == "" && p.Status < http.StatusInternalServerError {
		recorded = client.RecordedNo
	}
	return &client.CallError{Op: string(call.Op), Recorded: recorded, Err: problemFrom(p)}
}

func problemFrom(p *api.Problem) *client.Problem {
	return &client.Problem{
		Type: p.Type, Title: p.Title, Status: p.Status, Field: p.Field, Detail: p.Detail,
		Recorded: client.Recorded(p.Recorded), RetryAfter: p.RetryAfter,
	}
}

// decisionOf returns a in the form that clients of a server get.
func decisionOf(a *limiter.Answer) client.Decision {
	inShadow := a.Policy.Mode == policy.ModeShadow
	for i := range a.Demands {
		inShadow = inShadow || a.Demands[i].Policy.Mode == policy.ModeShadow
	}
	d := demandOf(&a.Decision, inShadow)
	d.Receipt, d.Release, d.Reservation, d.Replayed = a.Receipt, a.Release, a.Reservation, a.Replayed
	if len(a.Settled) == 1 {
		d.Settled, d.Over = a.Settled[0].Cost, a.Settled[0].Over
	}
	for i := range a.Demands {
		one := &a.Demands[i]
		d.Demands = append(d.Demands, demandOf(one, one.Policy.Mode == policy.ModeShadow))
		if a.Settled != nil {
			d.Demands[i].Settled, d.Demands[i].Over = a.Settled[i].Cost, a.Settled[i].Over
		}
	}
	return d
}

// demandOf returns d in the form of a client's decision. In mode shadow, WouldAllow is d's own verdict.
func demandOf(d *count.Decision, inShadow bool) client.Decision {
	to := client.Decision{
		Allowed: d.Allowed, WouldAllow: d.Allowed, Policy: d.Policy.Name, Limit: d.TightestLimit().Limit,
		Remaining: d.Remaining, Used: d.Used, ResetAfter: milliseconds(d.ResetAfter), Mode: client.Mode(d.Policy.Mode),
		Override: client.Override(d.Override), Blocked: d.Blocked, Reason: client.Reason(d.Reason), Degraded: d.Degraded,
		Limits: make([]client.LimitDecision, len(d.Limits())),
	}
	if inShadow {
		to.WouldAllow = d.WouldAllow
	}
	if !d.Allowed { // in mode shadow, only limits have waits
		to.RetryAfter = wait(d.RetryAfter)
	}
	if d.Degraded {
		to.Recorded = client.Recorded(d.Recorded)
	}
	for i := range d.Limits() {
		l := &d.Limits()[i]
		to.Limits[i] = client.LimitDecision{
			Name: l.Limit.Name, Algorithm: l.Limit.Algorithm, Limit: l.Limit.Limit, Window: milliseconds(l.Limit.Window),
			Allowed: l.Allowed || l.Limit.Shadow, Shadow: l.Limit.Shadow, WouldDeny: l.WouldDeny(), Used: l.Used, Remaining: l.Remaining,
			ResetAfter: milliseconds(l.ResetAfter), RetryAfter: wait(l.RetryAfter),
		}
	}
	return to
}

func wait(d time.Duration) time.Duration {
	if d == count.Never {
		return client.Never
	}
	return milliseconds(d)
}

// milliseconds returns d in whole milliseconds, rounded up like a server's.
func milliseconds(d time.Duration) time.Duration {
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}
