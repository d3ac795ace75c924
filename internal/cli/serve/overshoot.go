package serve

import (
	"context"
	"encoding/hex"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// overshootKept is the number of worst keys that an instance reports to another one, the most that a request can ask
// for.
const overshootKept = 100

// errNotInForce is the reason of an instance that counts nothing under a policy.
var errNotInForce = errors.New("the policy is not in force there")

// overshootOf reports how far callers went past a policy's limits, on one instance or on all.
func (s *service) overshootOf(ctx context.Context, policy string, top int, instance string) (o api.Overshoot, err error) {
	here, known := s.measured.Overshoot(policy, overshootKept)
	if !known {
		return o, limiter.ErrUnknownPolicy
	}
	whom, err := s.whom(instance)
	if err != nil {
		return o, err
	}
	q := &question{About: aboutOvershoot, Policy: policy}
	reports, missing := reportsOf(ctx, s, &whom, q, func() overshoot.Report { return here }, errNotInForce)
	o.Scope, o.Instances, o.Unanswered, o.Worst = whom.scope(), []api.OvershootInstance{}, missing, []api.WorstKey{}
	var sum overshoot.Report
	for i := range reports {
		r := &reports[i].report
		o.Instances = append(o.Instances, api.OvershootInstance{Instance: string(reports[i].member.ID), Since: r.Since, Attempts: r.Attempts})
		if i == 0 {
			sum = *r
		} else {
			sum.Add(r, overshootKept)
		}
	}
	if !sum.Since.IsZero() {
		o.Since = &sum.Since
	}
	if !sum.WorstSince.IsZero() {
		o.WorstSince = &sum.WorstSince
	}
	o.Attempts, o.Units, o.Episodes, o.KeysOver, o.Dropped = sum.Attempts, sum.Units, sum.Episodes, sum.Open, sum.Dropped
	o.Distribution = api.Distribution{Attempts: spreadOf(&sum.PerEpisode), TimesLimit: spreadOf(&sum.Times)}
	for _, w := range sum.Worst[:min(top, len(sum.Worst))] {
		o.Worst = append(o.Worst, api.WorstKey{Key: hex.EncodeToString(w.Key.Bytes()), Attempts: w.Attempts, Error: w.Error})
	}
	return o, nil
}

func spreadOf(s *overshoot.Spread) api.Spread {
	as := api.Spread{Count: s.Count, P50: s.P50, P90: s.P90, P99: s.P99, Max: s.Max, Buckets: []api.SpreadBucket{}}
	for _, b := range s.Buckets {
		as.Buckets = append(as.Buckets, api.SpreadBucket(b))
	}
	return as
}
