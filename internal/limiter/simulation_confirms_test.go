package limiter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// confirming returns s or, in its place, in one schedule of 16, one whose clients confirm and refund what they took,
// under a conversion or a limit that counts until then.
func (s scenario) confirming(seed uint64) scenario {
	if seed%16 != 9 {
		return s
	}
	rng := rand.New(rand.NewPCG(seed, streamConfirming))
	made := scenario{
		instances: s.instances, clients: s.clients, weather: s.weather, trouble: s.trouble, settles: s.settles,
		act: confirm, lasts: 6 * time.Second, thinks: time.Duration(60+rng.IntN(100)) * time.Millisecond, costs: rng.IntN(4) == 0,
	}
	algorithm := oneOf(rng, "conversion", "conversion", "conversion", "sliding-log", "fixed-window")
	made.name = "confirming under " + algorithm
	l := shortLimit(rng, algorithm)
	l.Limit++
	if made.total = rng.IntN(2) == 0; made.total {
		l.Window = longWindow
	}
	if algorithm == "conversion" {
		l.MinConversion = oneOf(rng, 20, 50, 100)
		l.Probe = oneOf(rng, 0, 200*time.Millisecond, 700*time.Millisecond)
	} else {
		l.Until = policy.UntilConfirmed
	}
	p := policy.Policy{Name: "p", Limits: []policy.Limit{l}}
	switch {
	case rng.IntN(2) == 0:
		p.Counting = policy.CountingRows
	case algorithm == "conversion": // nobody owns keys, so it is kept as if it were counted
		p.Guarantee = policy.GuaranteeLocal
	}
	made.policies = []policy.Policy{p}
	return made
}

// confirm takes, and confirms or refunds what it took, perhaps again.
func confirm(c *client) {
	n := len(c.open)
	if n == 0 || c.rng.IntN(2) == 0 {
		c.keep(c.do(limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{c.demand("p")}}))
		return
	}
	r := c.open[c.rng.IntN(n)]
	if c.rng.IntN(4) == 0 {
		c.comeBack(r)
		return
	}
	receipt := r.answer.Receipt
	c.ask(&record{confirm: receipt}, func(ctx context.Context, e *limiter.Engine) (limiter.Answer, error) {
		done, err := e.Confirm(ctx, receipt)
		return limiter.Answer{Replayed: done.Replayed}, err
	})
}

// confirms returns the calls that confirmed u, answered or not.
func (w *world) confirms(u *unit) (found []*record) {
	for _, r := range w.history {
		if r.confirm != "" && r.confirm == u.answer.Receipt {
			found = append(found, r)
		}
	}
	return found
}

// done reports whether one of calls was answered that it did something, now.
func done(calls []*record) bool {
	return slices.ContainsFunc(calls, func(r *record) bool { return !r.lost && r.err == nil && !r.answer.Replayed })
}

// checkConfirmed checks that no counted units were confirmed or refunded twice.
// A cost that a reservation did not hold is a unit of its own, which only the first receipt has. A release may be
// repeated.
func (w *world) checkConfirmed(f *findings, units []*unit) {
	if w.scenario.policies[0].IsConcurrent() {
		return
	}
	for _, u := range units {
		n := 0
		if units, _ := w.settledAt(u); units > u.cost {
			n--
		}
		for _, r := range slices.Concat(w.confirms(u), w.refunds(u)) {
			if done([]*record{r}) {
				n++
			}
		}
		if n > 1 {
			f.add(u.record, "confirmed or refunded %d times", n)
		}
	}
}

// checkConversion holds that no unit was sent that the definition denies, whatever of what was confirmed by then
// counts, of what surely was sent, but for probes.
func (w *world) checkConversion(f *findings, l *policy.Limit, units []*unit) {
	for _, u := range units {
		if u.call.Op != count.OpTake || !u.passed() || u.at == 0 {
			continue
		}
		sent, confirmed, last := int64(0), int64(0), store.Instant(0)
		for _, v := range units {
			if v == u || !v.passed() || v.at == 0 {
				continue
			}
			inWindow := floor(v.at, l.Window/policy.ConversionBlocks) > u.at.Add(-l.Window)
			if v.at < u.at && !slices.ContainsFunc(w.refunds(v), func(r *record) bool { return r.began < u.ended }) {
				last = max(last, v.at)
				if inWindow {
					sent += v.cost
				}
			}
			if inWindow && slices.ContainsFunc(w.confirms(v), func(r *record) bool { return r.began < u.ended }) {
				confirmed += v.cost
			}
		}
		probe := l.Probe > 0 && u.cost == 1 && last <= u.at.Add(-l.Probe)
		if denies(*l, sent+u.cost-1, confirmed) && !probe {
			f.add(u.record, "sent after %d, of which %d may be confirmed", sent, confirmed)
		}
	}
}

// checkConversionLeft is checkLeft of a conversion.
func (w *world) checkConversionLeft(f *findings, p *policy.Policy, id keys.Identifier, units []*unit) {
	d, err := w.instances[0].engine.Check(context.Background(), limiter.Demand{Policy: p.Name, Identifier: id})
	if err != nil {
		f.wrong = append(f.wrong, fmt.Sprintf("the last check: %v", err))
		return
	}
	l := &p.Limits[0]
	sent, confirmed := [2]int64{}, [2]int64{} // the least and the most
	for _, u := range units {
		if u.counts && len(w.refunds(u)) == 0 {
			sent[0] += u.cost
		}
		if (u.counts || u.may || w.mayStay(p, l, u)) && !done(w.refunds(u)) {
			sent[1] += u.cost
		}
		if done(w.confirms(u)) {
			confirmed[0] += u.cost
		}
		if len(w.confirms(u)) > 0 {
			confirmed[1] += u.cost
		}
	}
	used := func(sent, confirmed int64) int64 {
		passing := confirmed*100/int64(l.MinConversion) + 1
		return max(0, sent-max(0, passing-l.Limit))
	}
	if least, most := used(sent[0], confirmed[1]), used(sent[1], confirmed[0]); d.Used < least || d.Used > most {
		f.wrong = append(f.wrong, fmt.Sprintf("%s: %d used in the end, of at least %d and at most %d: %v sent, %v confirmed",
			string(id), d.Used, least, most, sent, confirmed))
	}
}
