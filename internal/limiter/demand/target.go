package demand

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Target is one identifier under one policy: where it is counted.
type Target struct {
	Plan *Plan
	Key  store.Key   // under the key that is written with
	Cell store.Key   // under which its buckets are, where they are decided apart
	Old  []store.Key // under those that are read as well, while the hash key changes
}

// Of returns the target of id.
func (p *Plan) Of(id keys.Identifier) Target {
	var t Target
	p.Locate(&t, id)
	return t
}

// Locate makes t, which is zero, the target of id.
func (p *Plan) Locate(t *Target, id keys.Identifier) {
	t.Plan, t.Key = p, p.Keys[0].Of(id)
	if p.ByKey != nil {
		t.Plan = p.At(t.Key)
	}
	if len(p.Keys) > 1 || len(p.Parts) > 0 {
		t.locateOthers(id)
	}
}

// locateOthers adds to t, of id, the keys that it has beside the first.
func (t *Target) locateOthers(id keys.Identifier) {
	for _, keys := range t.Plan.Keys[1:] {
		t.Old = append(t.Old, keys.Of(id))
	}
	for _, part := range t.Plan.Parts {
		if part.Cell {
			t.Cell = part.Keys[0].Of(id)
		}
	}
}

// As returns t under another plan of its policy, under which there may be other keys.
func (t Target) As(p *Plan) Target {
	t.Plan = p
	if p.Cell && p.Places != nil {
		t.Key = t.Cell
	}
	if len(p.Keys) == 1 {
		t.Old = nil
	}
	return t
}

// Settling returns the write by which n's event, which was held for t, stays. t keeps events.
func (t *Target) Settling(n *count.Entry) *store.Write {
	return &store.Write{
		Key: t.Key, Level: t.Plan.Consistency.Write, Logs: t.Plan.LogWrites, Settle: true,
		Events: []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}},
	}
}
