package envoy

import (
	"fmt"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Bounds of one request. Envoy's route configuration makes descriptors of at most a few
// actions each.
const (
	maxDescriptors = 64
	maxEntries     = 64 // no mapping is that deep: a file nests less
)

// ask is one descriptor of a request, and its outcome.
type ask struct {
	rule     *rule // nil: nothing holds
	replaced bool  // by another descriptor's limit
	op       count.Op
	demand   limiter.Demand

	decision count.Decision
	limit    *policy.Limit // of the answer; nil: none was asked
	denied   bool
	err      error
}

// limited reports whether a policy decides.
func (a *ask) limited() bool { return a.rule != nil && !a.rule.unlimited && !a.replaced }

func (a *ask) outcome() Outcome {
	switch {
	case a.rule == nil:
		return OutcomeUnmatched
	case a.rule.unlimited:
		return OutcomeUnlimited
	case a.replaced:
		return OutcomeReplaced
	case a.err != nil:
		return OutcomeFailed
	case a.denied:
		return OutcomeDenied
	}
	return OutcomeAllowed
}

// prepare fills in asks, one for each descriptor of r, up to maxDescriptors. d is the domain of r, nil if it is not
// mapped. The error names the mistake in r.
func prepare(asks []ask, op count.Op, r *rls.RateLimitRequest, d *domain) error {
	switch n := len(r.GetDescriptors()); {
	case r.GetDomain() == "":
		return invalid("domain", "it is empty: give one")
	case n == 0:
		return invalid("descriptors", "there are none: give at least one")
	case n > maxDescriptors:
		return invalid("descriptors", "%d of them: use at most %d", n, maxDescriptors)
	}
	replacing := false
	for i, from := range r.GetDescriptors() {
		cost, err := costOf(from, i, r.GetHitsAddend())
		if err != nil {
			return err
		}
		if d == nil {
			continue
		}
		if found := d.find(from.GetEntries()); found != nil {
			asks[i].prepare(found, op, cost, from)
			replacing = replacing || found.replaces != nil
		}
	}
	if replacing {
		replace(asks)
	}
	if n := len(takes(asks)); d != nil && d.together && n > policy.MaxDemands {
		return invalid("descriptors", "%d of them stand or fall together: use at most %d", n, policy.MaxDemands)
	}
	return nil
}

// prepare fills in a with the demand of the descriptor from under r.
func (a *ask) prepare(r *rule, op count.Op, cost int64, from *pb.RateLimitDescriptor) {
	a.rule = r
	if r.unlimited {
		return
	}
	if cost == 0 || op == count.OpCheck { // would one more be allowed?
		op, cost = count.OpCheck, 1
	}
	a.op, a.demand = op, limiter.Demand{Policy: r.policy, Identifier: r.identifier(from.GetEntries()), Cost: cost}
}

// replace marks the limits that another limit of the same request replaces.
func replace(asks []ask) {
	names := make(map[string]bool)
	for i := range asks {
		if r := asks[i].rule; r != nil {
			for _, name := range r.replaces {
				names[name] = true
			}
		}
	}
	for i := range asks {
		r := asks[i].rule
		asks[i].replaced = r != nil && !r.unlimited && names[r.name]
	}
}

// costOf returns the units that descriptor i asks for: its own hits_addend, else the
// request's, else 1. Only its own can be 0.
func costOf(d *pb.RateLimitDescriptor, i int, ofRequest uint32) (int64, error) {
	own := d.GetHitsAddend()
	switch {
	case len(d.GetEntries()) > maxEntries:
		return 0, invalidIn(i, "entries", "%d of them: use at most %d", len(d.GetEntries()), maxEntries)
	case d.GetIsNegativeHits():
		return 0, invalidIn(i, "is_negative_hits", "negative hits are not supported: remove it, and refund by the receipt over HTTP")
	case own.GetValue() > policy.MaxCost:
		return 0, invalidIn(i, "hits_addend", "%d is out of range: use 0 to %d", own.GetValue(), int64(policy.MaxCost))
	case own != nil:
		return int64(own.GetValue()), nil
	}
	return int64(max(1, ofRequest)), nil
}

// invalidIn returns the error of a request with a mistake in descriptor i.
func invalidIn(i int, field, format string, args ...any) error {
	return invalid(fmt.Sprintf("descriptors[%d].%s", i, field), format, args...)
}

// invalid returns the error of a request with a mistake in field.
func invalid(field, format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, field+": "+format, args...)
}
