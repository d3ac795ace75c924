package serve

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/shadow"
)

// shadowOf sums the reports of all instances on the shadows of policy.
func (s *service) shadowOf(ctx context.Context, policy string) encode.Shadow {
	a := encode.Shadow{
		Scope:  encode.ScopeInstance,
		Limits: []encode.ShadowLimit{}, Instances: []encode.ShadowInstance{}, Unanswered: []encode.Unanswered{},
	}
	a.Version, _ = s.engine.Version()
	sum, known := s.shadows.Report(policy)
	if !known {
		return a
	}
	whom, _ := s.whom("") // all
	q := &question{About: aboutShadow, Policy: policy}
	reports, missing := reportsOf(ctx, s, &whom, q, func() shadow.Report { return sum }, errOtherShadows)
	a.Scope, a.Unanswered = whom.scope(), missing
	for i := range reports {
		member, r := &reports[i].member, &reports[i].report
		if r.Print != sum.Print {
			a.Unanswered = append(a.Unanswered, unanswered(member, errOtherShadows))
			continue
		}
		a.Instances = append(a.Instances, encode.ShadowInstance{Instance: string(member.ID), Since: r.Since, Calls: r.Calls})
		if i > 0 {
			sum.Add(r)
		}
	}
	a.Since, a.Calls, a.Denied, a.Undecided = &sum.Since, sum.Calls, sum.Denied, sum.Undecided
	a.WouldDeny, a.Callers, a.Confirmed = sum.WouldDeny, sum.Callers.Count(), sum.Confirmed
	for i := range sum.Limits {
		l := &sum.Limits[i]
		a.Limits = append(a.Limits, encode.ShadowLimit{
			Name: l.Name, WouldDeny: l.WouldDeny, Callers: l.Callers.Count(), Hours: spansOf(l.Hours), Minutes: spansOf(l.Minutes),
		})
	}
	return a
}

// errOtherShadows is the reason of an instance whose counts can't be added to those of this one.
var errOtherShadows = errors.New("another version of the policy is in force there")

func spansOf(spans []shadow.Span) []encode.ShadowSpan {
	all := make([]encode.ShadowSpan, len(spans))
	for i := range spans {
		all[i] = encode.ShadowSpan{
			Start: spans[i].Start, Calls: spans[i].Calls, WouldDeny: spans[i].WouldDeny, Callers: spans[i].Callers.Count(),
		}
	}
	return all
}
