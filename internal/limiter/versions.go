package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Instances that share versions of the policies come to have a new one at different moments. A call is
// decided by one version all the same: that of the instance which was asked. An owner decides it only if its
// own policy is defined alike. If the owner is behind, it reads the new version first. If the asker is behind,
// the owner says so; the asker reads the new version and decides the whole call anew by that.
// docs/design/policies.md has the rest.

// NewerError is an ErrRefused of an instance that has a later version of the policies.
type NewerError struct{ Version int64 }

// Error names the version.
func (e *NewerError) Error() string {
	return fmt.Sprintf("version %d of the policies is in force there", e.Version)
}

// Is reports that e is ErrRefused.
func (e *NewerError) Is(target error) bool { return target == ErrRefused }

// errSuperseded is a call that was not decided, and of which nothing counts: a later version of the policies is
// in force.
var errSuperseded = fmt.Errorf("%w: a later version of the policies is in force", store.ErrUnavailable)

// errNoPolicies is a call to an engine that no policies were given yet.
var errNoPolicies = &StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: no policies are in force yet", store.ErrUnavailable)}

// unknown is the error of a policy that p does not have.
func (p *planSet) unknown() error {
	if p.byName == nil {
		return errNoPolicies
	}
	return ErrUnknownPolicy // without the name: who mixes up the fields sends an identifier in it
}

// planForPeer returns the plan that call is decided by, nil for one that needs none: it is defined as that of
// who asks. The error wraps ErrRefused.
func (e *Engine) planForPeer(ctx context.Context, call *PeerCall) (*plan, error) {
	if call.Op == opOpen {
		return nil, nil
	}
	set := e.plans.Load()
	if p := set.of(call.Policy); p.suits(call) {
		return p, nil
	}
	if set.version < call.Version && e.opts.AwaitPolicies != nil && e.opts.AwaitPolicies(ctx, call.Version) == nil {
		set = e.plans.Load()
		if p := set.of(call.Policy); p.suits(call) {
			return p, nil
		}
	}
	if set.version > call.Version {
		return nil, &NewerError{Version: set.version}
	}
	return nil, ErrRefused
}

// suits reports whether p, which may be nil, is defined as the plan of who sent call.
func (p *plan) suits(call *PeerCall) bool {
	return p != nil && p.print == call.Print && len(p.parts) == 0 && len(call.Old) == len(p.keys)-1
}

// catchesUp reports whether err is that of an owner with later policies, which are in force here, too, now.
func (e *Engine) catchesUp(ctx context.Context, err error) bool {
	newer := (*NewerError)(nil)
	return errors.As(err, &newer) && e.opts.AwaitPolicies != nil && e.opts.AwaitPolicies(ctx, newer.Version) == nil
}

// maxAnew is how many times a call is decided anew. Then its keys' owners are not asked: it counts as a guest.
const maxAnew = 3

// decideByOneVersion returns what call asks for, decided by the version of the policies that is in force, or by
// one that came into force meanwhile. Nil: the call can't be decided, and the error says why.
func (e *Engine) decideByOneVersion(ctx context.Context, one *single, call *Call) (charges []charge, err error) {
	for tries := 0; ; tries++ {
		if charges, err = e.charges(one.charges[:0], call); err != nil {
			return nil, err
		}
		charges[0].still = &one.still // for what is decided of it alone
		if tries < maxAnew && mayBeginAnew(charges) {
			for i := range charges {
				charges[i].mayBeginAnew = true
			}
		}
		if err = e.decideAll(ctx, charges); !beginsAnew(err) {
			return charges, err
		}
	}
}

// mayBeginAnew reports whether nothing of charges counts where one of them is refused.
func mayBeginAnew(charges []charge) bool {
	undoes := func(c charge) bool { return c.op == count.OpCheck || c.op == count.OpTake && c.canAbort() }
	return len(charges) == 1 || !slices.ContainsFunc(charges, func(c charge) bool { return !undoes(c) })
}

// beginsAnew reports whether err is that of a call that is to be decided anew.
func beginsAnew(err error) bool {
	if err == nil { // so that the usual case allocates nothing
		return false
	}
	failed := (*StoreError)(nil)
	return errors.As(err, &failed) && failed.Recorded == count.RecordedNo && errors.Is(err, errSuperseded)
}

// anew returns the error of charges of which one is to be decided anew, so that all are. Its Recorded is unknown,
// and they are not, if one of them may count. Nil: none is.
func anew(charges []charge) error {
	if !slices.ContainsFunc(charges, func(c charge) bool { return beginsAnew(c.err) }) {
		return nil
	}
	failed := &StoreError{Recorded: count.RecordedNo, Err: errSuperseded}
	for i := range charges {
		if charges[i].err == nil && charges[i].decision.Recorded != count.RecordedNo && charges[i].decision.Recorded != "" {
			failed.Recorded = count.RecordedUnknown
		}
	}
	return failed
}
