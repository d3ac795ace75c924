package limiter

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// target is one identifier under one policy: where it is counted.
type target struct {
	plan *plan
	key  store.Key   // under the key that is written with
	cell store.Key   // under which its buckets are, where they are decided apart
	old  []store.Key // under those that are read as well, while the hash key changes
}

// of returns the target of id.
func (p *plan) of(id keys.Identifier) target {
	var t target
	p.locate(&t, id)
	return t
}

// locate makes t, which is zero, the target of id.
func (p *plan) locate(t *target, id keys.Identifier) {
	t.plan, t.key = p, p.keys[0].Of(id)
	if len(p.keys) > 1 || len(p.parts) > 0 {
		t.locateOthers(id)
	}
}

// locateOthers adds to t, of id, the keys that it has beside the first.
func (t *target) locateOthers(id keys.Identifier) {
	for _, keys := range t.plan.keys[1:] {
		t.old = append(t.old, keys.Of(id))
	}
	for _, part := range t.plan.parts {
		if part.Cell {
			t.cell = part.keys[0].Of(id)
		}
	}
}

// KeyOf returns the key that id is counted under: that of the hash key that is written
// with. Errors wrap ErrInvalid or ErrUnknownPolicy.
func (e *Engine) KeyOf(policy string, id keys.Identifier) (store.Key, error) {
	p, id, _, err := e.planOf(policy, id)
	if err != nil {
		return store.Key{}, err
	}
	return p.keys[0].Of(id), nil
}

// as returns t under another plan of its policy, under which there may be other keys.
func (t target) as(p *plan) target {
	t.plan = p
	if p.Cell && p.limit != nil {
		t.key = t.cell
	}
	if len(p.keys) == 1 {
		t.old = nil
	}
	return t
}

// charge is one demand on its way through a store: what is asked, and what came of
// it.
type charge struct {
	target
	op   count.Op
	cost int64
	hold time.Duration // for how long the units are held unless they are settled; 0: they stay
	id   store.EventID // of its event; zero: the store's decider makes one
	over *override     // of its key; nil: none
	ends bool          // it has no more time than its context; else a store timeout, which others may share
	told bool          // its decision is made

	placed bool // its event may have been written to a log, whether it counts or not

	right Right // by which it is decided; nil: nobody owns keys

	prepare store.EventID // under which it is prepared, to be committed or aborted; zero: it stays
	atOnce  bool          // it is not to wait for other calls: the error wraps ErrInDoubt then
	asked   bool          // somebody was asked to decide it
	owner   Peer          // who was; nil: this instance

	mayBeginAnew bool // its call may be decided anew by a later version of the policies

	still *stillCharge // memory for deciding it alone; nil: it is to be found

	decision count.Decision
	err      error
}
