package main

import (
	"context"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// played is what became of all asks.
type played struct {
	sent     [whoCount]map[string]int // messages by country
	deniedBy [whoCount]map[string]int // asks, by the limit or the rule that the answer tells
	hurt     map[int]bool             // honest sign-ups that were denied, once at least
	allowed  []bool                   // of each ask, in their order
}

// code is one that was sent, and that somebody enters.
type code struct {
	entered time.Time
	receipt string
}

// Of honest users one in ten never enters the code, the others the last that was sent, after half a minute. Nobody
// else enters any.
const (
	givesUp     = 10
	entersAfter = 30 * time.Second
)

// lastOf returns the last ask of each honest sign-up.
func lastOf(asks []ask) map[int]int {
	last := make(map[int]int)
	for i := range asks {
		if asks[i].who == honest {
			last[asks[i].signup] = i
		}
	}
	return last
}

// sweepEvery is after how many asks the store forgets what is over.
const sweepEvery = 10_000

// play decides asks under policies, each when it is asked.
func play(policies []policy.Policy, asks []ask) (*played, error) {
	var now time.Time
	clock := func() time.Time { return now }
	store := embedded.New(&embedded.Options{Now: clock})
	engine := limiter.New(store, &limiter.Options{Now: clock, Identifiers: identifier.Reader})
	if err := engine.SetPolicies(policies); err != nil {
		return nil, err
	}
	p := &played{hurt: make(map[int]bool)}
	for i := range p.sent {
		p.sent[i], p.deniedBy[i] = make(map[string]int), make(map[string]int)
	}
	last := lastOf(asks)
	var sent []code // that will be entered, in order
	for i := range asks {
		a := &asks[i]
		for ; len(sent) > 0 && !sent[0].entered.After(a.at); sent = sent[1:] {
			now = sent[0].entered
			if _, err := engine.Confirm(context.Background(), sent[0].receipt); err != nil {
				return nil, err
			}
		}
		now = a.at
		answer, err := engine.Do(context.Background(), &limiter.Call{Op: count.OpTake, Demands: a.demands(policies)})
		if err != nil {
			return nil, err
		}
		p.note(a, &answer.Decision)
		if answer.Allowed && a.who == honest && last[a.signup] == i && a.signup%givesUp != 0 {
			sent = append(sent, code{a.at.Add(entersAfter), answer.Receipt})
		}
		if i%sweepEvery == sweepEvery-1 {
			store.Sweep()
		}
	}
	return p, nil
}

// demands returns what a asks of policies, all or none.
func (a *ask) demands(policies []policy.Policy) []limiter.Demand {
	all := []limiter.Demand{
		{Policy: "sms-phone", Identifier: keys.Identifier(a.phone)},
		{Policy: "sms-device", Identifier: keys.Identifier(a.device)},
		{Policy: "sms-address", Identifier: keys.Identifier(a.address)},
		{Policy: "sms-budget", Identifier: "all", Cost: a.cost},
	}
	return slices.DeleteFunc(all, func(d limiter.Demand) bool {
		return !slices.ContainsFunc(policies, func(p policy.Policy) bool { return p.Name == d.Policy })
	})
}

// note counts what became of a.
func (p *played) note(a *ask, d *count.Decision) {
	p.allowed = append(p.allowed, d.Allowed)
	switch {
	case d.Allowed:
		p.sent[a.who][a.country]++
		return
	case d.Reason != "":
		p.deniedBy[a.who][d.Policy.Name+", "+string(d.Reason)]++
	default:
		p.deniedBy[a.who][d.Policy.Name+", "+d.TightestLimit().Name]++
	}
	if a.who == honest {
		p.hurt[a.signup] = true
	}
}
