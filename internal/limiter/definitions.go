package limiter

import (
	"encoding/json"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// An owner decides a charge by the definition of its policy on the instance that the caller asked. It differs from the
// owner's definition under an override, or if the instances have different versions or files. docs/design/policies.md
// explains this.

// planBy returns the plan of definition d for key. The error wraps owner.ErrRefused, or is a StoreError.
func (ps *plans) planBy(d *demand.Definition, key store.Key) (*demand.Plan, error) {
	p := ps.inForce.Load().byName[d.Policy]
	if p != nil {
		p = p.At(key)
	}
	if p == nil || p.Definition.Print != d.Print {
		var err error
		if p, err = ps.foreignBy(d); err != nil {
			return nil, err
		}
	}
	if d.Limit != 0 && !p.TakesLimit(d.Limit) {
		return nil, owner.ErrRefused
	}
	return p.Asked(d.Limit), nil
}

// foreignBy returns the plan of a definition that another instance sent, now or earlier. It returns an error if the text
// does not have d's print: an instance of a later build may send fields that this one does not know.
func (ps *plans) foreignBy(d *demand.Definition) (*demand.Plan, error) {
	if p := ps.foreign.Get(d.Print); p != nil && p.Name == d.Policy {
		return p, nil
	}
	if len(d.Text) == 0 {
		return nil, owner.ErrUndefined
	}
	var p policy.Policy
	if json.Unmarshal(d.Text, &p) == nil && p.Name == d.Policy && len(p.Problems()) == 0 {
		if made := demand.NewPlan(p, ps.settings, ps.inMemory); made.Definition.Print == d.Print {
			return ps.foreign.Put(d.Print, made), nil
		}
	}
	err := fmt.Errorf("%w: the owner of the key can't read this definition of the policy", store.ErrUnavailable)
	return nil, &count.StoreError{Recorded: count.RecordedNo, Err: err}
}

// errNoPolicies means that the engine has no policies yet.
var errNoPolicies = &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: no policies are in force yet", store.ErrUnavailable)}

// unknown returns the error for a policy that p does not have.
func (p *planSet) unknown() error {
	if p.byName == nil {
		return errNoPolicies
	}
	return ErrUnknownPolicy // without the name: a caller that mixes up the fields sends an identifier in it
}
