package envoy

import (
	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// bringLimits sets the limits in the descriptors of r on asks.
func (s *Server) bringLimits(asks []ask, r *rls.RateLimitRequest) error {
	for i, from := range r.GetDescriptors() {
		if from.GetLimit() == nil {
			continue
		}
		if asks[i].rule == nil {
			return invalidIn(i, "limit", "no policy is mapped to the descriptor: map one, or remove the limit")
		}
		if !asks[i].limited() {
			continue
		}
		p, ok := s.engine.Policy(asks[i].rule.policy)
		if !ok { // the policies are changing, and the decision will fail
			continue
		}
		if err := checkLimit(p, from.GetLimit(), i); err != nil {
			return err
		}
		asks[i].demand.Limit = int64(from.GetLimit().GetRequestsPerUnit())
	}
	return nil
}

// checkLimit returns an error if p does not accept the limit of descriptor i.
func checkLimit(p *policy.Policy, brought *pb.RateLimitDescriptor_RateLimitOverride, i int) error {
	at := p.FromRequest()
	if at < 0 {
		return invalidIn(i, "limit", "the policy takes no limit from requests: remove it from the route's rate_limits, "+
			"or write limit: {from: request, max: 1000, default: 100} or the like in the policy")
	}
	l := &p.Limits[at]
	unit, number := unitOf(l), int64(brought.GetRequestsPerUnit())
	switch {
	case unit == rls.RateLimitResponse_RateLimit_UNKNOWN:
		return invalidIn(i, "limit.unit", "the policy's window of %s is not a unit: use 1s, 1m, 1h, 1d, 7d, 30d, day, week or month there",
			l.WindowName())
	case brought.GetUnit().String() != unit.String():
		return invalidIn(i, "limit.unit", "%s, and the policy's window is %s: use %s", brought.GetUnit(), l.WindowName(), unit)
	case number < 1 || number > l.Max:
		return invalidIn(i, "limit.requests_per_unit", "%d is out of range: use 1 to %d, the policy's max", number, l.Max)
	}
	return nil
}
