package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Request is a planned call, with the calls that depend on it.
type Request struct {
	At      time.Duration
	Process int
	Op      string
	Demands []history.Demand
	Key     string        // idempotency key under which it is repeated, at other processes, until there is an answer
	Again   bool          // repeated once even if it was answered
	Reserve time.Duration // held by a check
	Settle  time.Duration // after which the held unit is recorded; 0: never
	Cost    int64         // units of that record; 0: the one held unit

	Ends    []string      // operations with its receipt or reservation, all at once at as many processes
	EndWait time.Duration // time from its answer until Ends
}

// load is the traffic of a policy: bursts of takes that arrive at several processes at once.
type load struct {
	every  time.Duration // between bursts, on average
	burst  int           // takes at most
	rotate time.Duration // until the next identifier, because only short histories can be searched
}

const (
	burstEvery  = 2 * time.Second
	rotateEvery = 20 * time.Second
	spread      = 30 * time.Millisecond // time between the first and last take of a burst
	reserve     = 12 * time.Second      // how long a reservation holds
	settleBy    = 6 * time.Second
	checks      = 10 // one in ten calls is a check
	lateEnds    = 4  // one in four receipts is used late
)

// loadOf returns the traffic of p: enough to reach its limit most of the time, unless it must never be reached.
func loadOf(p *history.Policy) load {
	switch {
	case p.Kept && (p.Confirms() || p.Releases()):
		return load{every: burstEvery, burst: 2, rotate: 2 * rotateEvery}
	case p.Kept:
		return load{every: burstEvery / 2, burst: 2, rotate: 2 * rotateEvery}
	case p.With != "":
		return load{every: burstEvery, burst: 5, rotate: rotateEvery / 2}
	case p.Confirms(), p.Releases():
		return load{every: burstEvery, burst: int(p.Limit) + 2, rotate: rotateEvery}
	case p.Limit >= wideLimit: // about as much as the limit: it is reached in some windows only
		return load{every: 2 * burstEvery, burst: wideLimit / 2, rotate: 2 * rotateEvery}
	case p.Limit >= largeLimit:
		return load{every: 2 * burstEvery, burst: 2 * largeLimit, rotate: rotateEvery}
	case p.Window > 10*time.Second:
		return load{every: burstEvery, burst: 6, rotate: 4 * rotateEvery}
	}
	return load{every: burstEvery / 2, burst: int(p.Limit) + 1, rotate: rotateEvery}
}

// Calls returns the calls of a run, in the order of their times. Reservations begin early enough to end with
// the run.
func Calls(seed uint64, policies []history.Policy, processes int, lasts time.Duration) (calls []Request) {
	for i := range policies {
		p := &policies[i]
		if p.With != "" && p.With < p.Name {
			continue
		}
		c := caller{rng: random(seed, streamCalls+i), policy: p, processes: processes}
		calls = append(calls, c.calls(lasts)...)
	}
	slices.SortStableFunc(calls, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
	return calls
}

type caller struct {
	rng       *rand.Rand
	policy    *history.Policy
	processes int
	made      int
}

func (c *caller) calls(lasts time.Duration) (calls []Request) {
	l := loadOf(c.policy)
	for at := c.wait(l.every); at < lasts; at += c.wait(l.every) {
		id := fmt.Sprintf("%s-%d", c.policy.Name, at/l.rotate)
		for range 1 + c.rng.IntN(l.burst) {
			calls = append(calls, c.call(at+c.below(spread), id))
		}
	}
	return calls
}

// wait returns the time until the next burst.
func (c *caller) wait(mean time.Duration) time.Duration {
	return time.Duration(c.rng.ExpFloat64() * float64(mean))
}

func (c *caller) below(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

// call draws a call for id.
func (c *caller) call(at time.Duration, id string) Request {
	c.made++
	one := history.Demand{Policy: c.policy.Name, Identifier: id}
	r := Request{At: at, Process: c.rng.IntN(c.processes), Op: history.Take, Demands: []history.Demand{one}}
	switch {
	case c.policy.With != "":
		r.Demands = append(r.Demands, history.Demand{Policy: c.policy.With, Identifier: id})
		if c.rng.IntN(3) == 0 {
			c.repeat(&r)
		}
	case c.policy.Kept:
		c.keep(&r)
	case c.rng.IntN(checks) == 0:
		r.Op = history.Check
	}
	if (c.policy.Confirms() || c.policy.Releases()) && r.Op != history.Check {
		c.end(&r)
	}
	return r
}

// end lets r's receipt be confirmed, refunded or released, soon or late, at one process or at two at once.
func (c *caller) end(r *Request) {
	switch n := c.rng.IntN(12); {
	case n < 4:
		return
	case c.policy.Releases() && n < 8:
		r.Ends = []string{history.Refund}
	case c.policy.Releases():
		r.Ends = []string{history.Refund, history.Refund}
	case n < 7:
		r.Ends = []string{history.Confirm}
	case n < 9:
		r.Ends = []string{history.Confirm, history.Confirm}
	case n < 10:
		r.Ends = []string{history.Confirm, history.Refund}
	default:
		r.Ends = []string{history.Refund}
	}
	r.EndWait = c.below(min(c.policy.Window, settleBy) / 2)
	if c.rng.IntN(lateEnds) == 0 {
		r.EndWait *= 4
	}
}

// keep makes r a call whose units must count at the end.
func (c *caller) keep(r *Request) {
	switch n := c.rng.IntN(20); {
	case n < 3:
		r.Op = history.Record
	case n < 9:
		c.repeat(r)
	case n < 13 && c.policy.Algorithm == "sliding-log": // others cannot free what a process that died had reserved
		r.Op, r.Reserve, r.Again = history.Check, reserve, c.rng.IntN(2) == 0
		switch c.rng.IntN(8) {
		case 0, 1: // it ends by itself
		case 2:
			r.Ends, r.EndWait = []string{history.Refund}, c.below(settleBy)
		default:
			r.Settle, r.Cost = 1+c.below(settleBy), 2*c.rng.Int64N(2)
		}
	}
}

// repeat gives r an idempotency key.
func (c *caller) repeat(r *Request) {
	r.Key = fmt.Sprintf("%s-%d", c.policy.Name, c.made)
	r.Again = c.rng.IntN(2) == 0
}
