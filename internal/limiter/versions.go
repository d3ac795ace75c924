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

// Instances that share versions of the policies come to have a new one at different moments. A call is
// decided by one version all the same: that of the instance which was asked. An owner decides it only if its
// own policy is defined alike. If the owner is behind, it reads the new version first. If the asker is behind,
// the owner says so; the asker reads the new version and decides the whole call anew by that.
// docs/design/policies.md has the rest.

// errNoPolicies is a call to an engine that no policies were given yet.
var errNoPolicies = &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: no policies are in force yet", store.ErrUnavailable)}

// unknown is the error of a policy that p does not have.
func (p *planSet) unknown() error {
	if p.byName == nil {
		return errNoPolicies
	}
	return ErrUnknownPolicy // without the name: who mixes up the fields sends an identifier in it
}

// planForPeer returns the plan that call is decided by, nil for one that needs none: it is defined as that of
// who asks. The error wraps ErrRefused.
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

// suits reports whether p, which may be nil, is defined as the plan of who sent call.
func suits(p *demand.Plan, call *owner.Call) bool {
	return p != nil && p.Print == call.Print && len(p.Parts) == 0 && len(call.Old) == len(p.Keys)-1 &&
		(call.Limit == 0 || p.TakesLimit(call.Limit))
}

// maxAnew is how many times a call is decided anew. Then its keys' owners are not asked: it counts as a guest.
const maxAnew = 3

// decideByOneVersion returns what call asks for, decided by the version of the policies that is in force, or by
// one that came into force meanwhile. Nil: the call can't be decided, and the error says why.
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

// mayBeginAnew reports whether nothing of charges counts where one of them is refused.
func mayBeginAnew(charges []demand.Charge) bool {
	undoes := func(c demand.Charge) bool { return c.Op == count.OpCheck || c.Op == count.OpTake && c.CanAbort() }
	return len(charges) == 1 || !slices.ContainsFunc(charges, func(c demand.Charge) bool { return !undoes(c) })
}
