package limiter

import (
	"context"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Instances that share versions of the policies get a new version at different moments. A call is decided by one
// version all the same: that of the instance that the caller asked. An owner decides the call only if its own policy
// has the same definition. If the owner is behind, it reads the new version first. If the sender is behind, the owner
// says so, and the sender reads the new version and decides the whole call anew by it. docs/design/policies.md has the
// rest.

// errNoPolicies means that the engine has no policies yet.
var errNoPolicies = &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: no policies are in force yet", store.ErrUnavailable)}

// unknown returns the error of a policy that p does not have.
func (p *planSet) unknown() error {
	if p.byName == nil {
		return errNoPolicies
	}
	return ErrUnknownPolicy // without the name: a caller that mixes up the fields sends an identifier in it
}

// planForPeer returns the plan for call, which has the same definition as the sender's; nil if call needs none. The
// error wraps ErrRefused.
func (ps *plans) planForPeer(ctx context.Context, call *owner.Call) (*demand.Plan, error) {
	if call.Op == owner.OpOpen || call.Op == owner.OpCommit || call.Op == owner.OpAbort {
		return nil, nil
	}
	set := ps.inForce.Load()
	if p := set.byName[call.Policy]; suits(p, call) {
		return p, nil
	}
	if set.version < call.Version && ps.settings.AwaitPolicies != nil && ps.settings.AwaitPolicies(ctx, call.Version) == nil {
		set = ps.inForce.Load()
		if p := set.byName[call.Policy]; suits(p, call) {
			return p, nil
		}
	}
	if set.version > call.Version {
		return nil, &owner.NewerError{Version: set.version}
	}
	return nil, owner.ErrRefused
}

// suits reports whether p, which may be nil, has the same definition as the plan of call's sender.
func suits(p *demand.Plan, call *owner.Call) bool {
	return p != nil && p.Print == call.Print && len(p.Parts) == 0 && len(call.Old) == len(p.Keys)-1 &&
		(call.Limit == 0 || p.TakesLimit(call.Limit))
}

// maxAnew is the number of times that a call is decided anew. After that it counts as a guest instead of asking owners.
const maxAnew = 3

// decideByOneVersion returns call's charges, decided by the version of the policies that is in force, or by one that
// came into force meanwhile. It returns nil and an error if the call is invalid.
func decideByOneVersion(
	ctx context.Context, m *charger, j *judge.Judge, one *single, call *Call, in try,
) (charges []demand.Charge, err error) {
	for tries := 0; ; tries++ {
		if charges, err = m.charges(one[:0], call, in); err != nil {
			return nil, err
		}
		if tries < maxAnew && mayBeginAnew(charges) {
			for i := range charges {
				charges[i].MayBeginAnew = true
			}
		}
		if err = j.DecideAll(ctx, charges); !demand.BeginsAnew(err) {
			return charges, err
		}
	}
}

// mayBeginAnew reports whether charges count nothing if one of them is refused.
func mayBeginAnew(charges []demand.Charge) bool {
	undoes := func(c demand.Charge) bool { return c.Op == count.OpCheck || c.Op == count.OpTake && c.CanAbort() }
	return len(charges) == 1 || !slices.ContainsFunc(charges, func(c demand.Charge) bool { return !undoes(c) })
}
