package serve

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// overshootKept is how many of the worst keys an instance tells another one: as many as can be asked for.
const overshootKept = 100

// errNotInForce is an instance that counts nothing under a policy.
var errNotInForce = errors.New("the policy is not in force there")

// overshootOf tells how far callers went past a policy's limits on that instance, or on all.
func (s *service) overshootOf(ctx context.Context, policy string, top int, instance string) (o api.Overshoot, err error) {
	here, known := s.measured.Overshoot(policy, overshootKept)
	if !known {
		return o, limiter.ErrUnknownPolicy
	}
	whom, err := s.whom(instance)
	if err != nil {
		return o, err
	}
	o.Scope = whom.scope()
	var sum overshoot.Report
	add := func(name string, r *overshoot.Report) {
		o.Instances = append(o.Instances, api.OvershootInstance{Instance: name, Since: r.Since, Attempts: r.Attempts})
		if len(o.Instances) == 1 {
			sum = *r
			return
		}
		sum.Add(r, overshootKept)
	}
	if whom.here {
		add(s.instanceName(), &here)
	}
	for _, p := range askPeers[overshoot.Report](ctx, s, whom.others, &question{About: aboutOvershoot, Policy: policy}) {
		if p.err != nil {
			o.Unanswered = append(o.Unanswered, p.unanswered(errNotInForce))
			continue
		}
		add(string(p.member.ID), &p.report)
	}
	o.Since, o.Attempts, o.Units, o.Episodes, o.KeysOver = sum.Since, sum.Attempts, sum.Units, sum.Episodes, sum.Open
	o.Dropped, o.PerEpisode, o.TimesLimit, o.WorstSince = sum.Dropped, spreadOf(&sum.PerEpisode), spreadOf(&sum.Times), sum.WorstSince
	for _, w := range sum.Worst[:min(top, len(sum.Worst))] {
		o.Worst = append(o.Worst, api.WorstKey(w))
	}
	return o, nil
}

func spreadOf(s *overshoot.Spread) api.Spread {
	as := api.Spread{Count: s.Count, P50: s.P50, P90: s.P90, P99: s.P99, Max: s.Max}
	for _, b := range s.Buckets {
		as.Buckets = append(as.Buckets, api.SpreadBucket(b))
	}
	return as
}
