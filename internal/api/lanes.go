package api

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// canonical returns the canonical form of an identifier under a policy.
type canonical func(policy string, id keys.Identifier) keys.Identifier

// canonical is the engine's. It recovers from a panic, because the operation panics again when it is decided.
func (s *Server) canonical(policy string, id keys.Identifier) (as keys.Identifier) {
	defer func() {
		if recover() != nil {
			as = id
		}
	}()
	return s.engine.Canonical(policy, id)
}

// lanesOf returns the indexes of the operations that can be decided, in lanes that are
// independent of each other: operations that share a policy and identifier, or an
// idempotency key, come one after the other, as if each had been sent on its own. Those that share derived identifiers
// don't: few would be left.
func lanesOf(ops []operation, as canonical) (lanes [][]int) {
	joined := joinOperations(ops, as)
	at := make([]int, len(ops)) // index into lanes, plus one
	for i := range ops {
		if ops[i].err != nil {
			continue
		}
		first := joined.first(i)
		if at[first] == 0 {
			lanes = append(lanes, nil)
			at[first] = len(lanes)
		}
		lanes[at[first]-1] = append(lanes[at[first]-1], i)
	}
	return lanes
}

// joints has for each operation an earlier one that it must follow, or itself.
type joints []int

// joint is a policy and identifier, or an idempotency key without a policy, that operations may share.
type joint struct{ policy, name string }

func joinOperations(ops []operation, as canonical) joints {
	j := make(joints, len(ops))
	last := make(map[joint]int, len(ops))
	for i := range ops {
		j[i] = i
		if ops[i].err != nil {
			continue
		}
		c := &ops[i].asked
		for _, d := range c.Demands {
			j.join(i, joint{d.Policy, string(as(d.Policy, d.Identifier))}, last)
		}
		if c.IdempotencyKey != "" {
			j.join(i, joint{name: c.IdempotencyKey}, last)
		}
	}
	return j
}

// join joins i to the last operation with the same joint.
func (j joints) join(i int, by joint, last map[joint]int) {
	if earlier, ok := last[by]; ok {
		a, b := j.first(earlier), j.first(i)
		j[max(a, b)] = min(a, b)
	}
	last[by] = i
}

// first returns the first of all operations that i is joined to.
func (j joints) first(i int) int {
	for j[i] != i {
		j[i] = j[j[i]] // shortens the way for the next
		i = j[i]
	}
	return i
}
