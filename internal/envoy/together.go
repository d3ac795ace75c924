package envoy

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// limitedOf returns the indexes of the asks that a policy decides.
func limitedOf(asks []ask) (group []int) {
	for i := range asks {
		if asks[i].limited() {
			group = append(group, i)
		}
	}
	return group
}

// takes returns the indexes of the asks that take units.
func takes(asks []ask) (group []int) {
	for i := range asks {
		if a := &asks[i]; a.limited() && a.op == count.OpTake {
			group = append(group, i)
		}
	}
	return group
}

// decideTogether decides asks so that either all takes are admitted or none. Each check and each record is decided on
// its own.
func (s *Server) decideTogether(ctx context.Context, asks []ask) {
	for i := range asks {
		if a := &asks[i]; a.limited() && a.op != count.OpTake {
			s.decide(ctx, a)
		}
	}
	group := takes(asks)
	if len(group) == 1 {
		s.decide(ctx, &asks[group[0]])
	}
	if len(group) <= 1 {
		return
	}
	demands, of := demandsOf(asks, group, true)
	answer, err := s.doAll(ctx, &limiter.Call{Op: count.OpTake, Demands: demands})
	if err == nil {
		spread(asks, group, of, &answer)
		return
	}
	if store := (*count.StoreError)(nil); !errors.As(err, &store) {
		s.decideApart(ctx, asks, group)
		return
	}
	for _, i := range group {
		asks[i].err = err
	}
}

// demandsOf returns the demands of group, with one for each policy and identifier, and for each of group the index of
// its demand. sums says whether the costs of asks with the same demand are added.
func demandsOf(asks []ask, group []int, sums bool) (demands []limiter.Demand, of []int) {
	type key struct {
		policy     string
		identifier keys.Identifier
	}
	seen := make(map[key]int, len(group))
	for _, i := range group {
		d := asks[i].demand
		at, twice := seen[key{d.Policy, d.Identifier}]
		if twice && sums {
			demands[at].Cost += d.Cost
		}
		if !twice {
			at = len(demands)
			seen[key{d.Policy, d.Identifier}] = at
			demands = append(demands, d)
		}
		of = append(of, at)
	}
	return demands, of
}

// spread gives each of group its decision. The first one gets the denial of a derived demand, whose descriptor is not
// known.
func spread(asks []ask, group, of []int, answer *limiter.Answer) {
	denied := false
	for n, i := range group {
		d := &answer.Decision
		if answer.Demands != nil {
			d = &answer.Demands[of[n]]
		}
		asks[i].conclude(d)
		denied = denied || asks[i].denied
	}
	if !denied && !answer.Allowed {
		asks[group[0]].conclude(&answer.Decision)
	}
}

// conclude sets the outcome of a to d.
func (a *ask) conclude(d *count.Decision) {
	a.decision = *d
	a.denied, a.limit = !d.Allowed, a.decision.TightestLimit()
}

// decideApart decides asks if the identifier of one can't be read, or its cost can never fit. If that is a denial, the
// others take nothing. If it denies nothing, as in mode shadow, each is taken on its own.
func (s *Server) decideApart(ctx context.Context, asks []ask, group []int) {
	settled := false
	for _, i := range group {
		a := &asks[i]
		a.op = count.OpCheck
		s.decide(ctx, a)
		a.op = count.OpTake
		settled = settled || a.denied || a.err != nil
	}
	for _, i := range group {
		if a := &asks[i]; !settled {
			a.decision, a.limit = count.Decision{}, nil
			s.decide(ctx, a)
		}
	}
}
