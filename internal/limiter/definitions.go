package limiter

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// An owner decides a call by the definition of its policy that is in force where the caller asked: under an override, or of
// another version or file, it is not the owner's own. Calls name the definition by its print. docs/design/policies.md has
// the rest.

// foreign has the plans of definitions that other instances sent. It is safe for concurrent use; the zero value is empty.
type foreign struct {
	mu    sync.RWMutex
	plans map[definition]*demand.Plan
}

type definition struct {
	policy string
	print  uint64
}

// maxForeign is the number of such plans, of some 3 kB each: far more than there are tariffs among overrides. Past it, all
// are sent and made anew.
const maxForeign = 1 << 10

// planForPeer returns the plan of the definition that call names; nil if call needs none. The error wraps owner.ErrRefused,
// or is a StoreError.
func (ps *plans) planForPeer(call *owner.Call) (*demand.Plan, error) {
	if call.Op == owner.OpCommit || call.Op == owner.OpAbort {
		return nil, nil
	}
	p := ps.inForce.Load().byName[call.Policy]
	if p != nil {
		p = p.At(call.Key)
	}
	if p == nil || p.Print != call.Print {
		var err error
		if p, err = ps.foreign.of(call, ps); err != nil {
			return nil, err
		}
	}
	if call.Limit != 0 && !p.TakesLimit(call.Limit) {
		return nil, owner.ErrRefused
	}
	return p.Asked(call.Limit), nil
}

// of returns the plan of the definition that call names, or has.
func (f *foreign) of(call *owner.Call, ps *plans) (*demand.Plan, error) {
	name := definition{call.Policy, call.Print}
	f.mu.RLock()
	p := f.plans[name]
	f.mu.RUnlock()
	switch {
	case p != nil:
		return p, nil
	case len(call.Definition) == 0:
		return nil, owner.ErrUndefined
	}
	p, err := ps.planOfText(call)
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if other := f.plans[name]; other != nil {
		return other, nil
	}
	if f.plans == nil || len(f.plans) >= maxForeign {
		f.plans = make(map[definition]*demand.Plan)
	}
	f.plans[name] = p
	return p, nil
}

// planOfText returns the plan of call's definition. It returns an error if the definition does not have the print that call
// names, as an instance of a later build may send members that this one does not know.
func (ps *plans) planOfText(call *owner.Call) (*demand.Plan, error) {
	var p policy.Policy
	if json.Unmarshal(call.Definition, &p) == nil && p.Name == call.Policy && len(p.Problems()) == 0 {
		if made := demand.NewPlan(p, ps.settings, ps.inMemory); made.Print == call.Print {
			return made, nil
		}
	}
	err := fmt.Errorf("%w: the owner of the key can't read this definition of the policy", store.ErrUnavailable)
	return nil, &count.StoreError{Recorded: count.RecordedNo, Err: err}
}

// errNoPolicies means that the engine has no policies yet.
var errNoPolicies = &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: no policies are in force yet", store.ErrUnavailable)}

// unknown returns the error of a policy that p does not have.
func (p *planSet) unknown() error {
	if p.byName == nil {
		return errNoPolicies
	}
	return ErrUnknownPolicy // without the name: a caller that mixes up the fields sends an identifier in it
}
