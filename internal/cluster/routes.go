package cluster

import (
	"context"
	"errors"
	"fmt"
)

// routes has the decider of each slot, as far as this member knows. It is immutable, and replaced as a whole.
type routes struct {
	view       View
	owners     [Slots]int16 // indices into the view's members; -1: no owner
	terms      [Slots]*Term // this member's terms
	all        *Term        // of mode Shared; nil: this member has none
	installed  bool
	membership *membership   // nil: this instance is no member
	left       bool          // this instance has left, and will not join again
	changed    chan struct{} // closed when the routes are replaced
}

// Place is the present decider of a slot: this instance, by Term, or else Peer.
type Place struct {
	Term *Term // the caller must call Leave when the call is decided; nil: a peer decides
	Peer Member
	View int64 // the number of the view that says so
}

// Enter returns the decider of slot. It waits until there is one, or until ctx ends, with an error.
func (c *Cluster) Enter(ctx context.Context, slot int) (Place, error) {
	for {
		r := c.routes.Load()
		if p, ok := r.enter(slot); ok {
			return p, nil
		}
		if r.left {
			return Place{}, errLeft
		}
		if err := r.await(ctx); err != nil {
			return Place{}, err
		}
	}
}

var errLeft = errors.New("this instance has left")

// EnterFor is Enter for a call that another member handed on under the view with this number. It waits until this
// member knows that view, too, and never returns a peer: ErrMoved means that this instance does not decide for the
// slot, and that the caller should look again.
func (c *Cluster) EnterFor(ctx context.Context, slot int, view int64) (*Term, error) {
	c.Notice(view)
	for {
		r := c.routes.Load()
		if r.left {
			return nil, fmt.Errorf("%w: %w", ErrMoved, errLeft)
		}
		if r.view.Number >= view {
			switch p, ok := r.enter(slot); {
			case ok && p.Term != nil:
				return p.Term, nil
			case ok:
				return nil, fmt.Errorf("%w: by view %d it is member %s", ErrMoved, p.View, p.Peer.ID)
			}
		}
		if err := r.await(ctx); err != nil {
			return nil, err
		}
	}
}

// await waits until the routes are replaced, or ctx ends.
func (r *routes) await(ctx context.Context) error {
	select {
	case <-r.changed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no instance decides for the key until the members have agreed on its owner: %w", ctx.Err())
	}
}

// enter returns the decider of slot, false if there is none yet.
func (r *routes) enter(slot int) (Place, bool) {
	if t := r.termOf(slot); t != nil {
		return Place{Term: t, View: r.view.Number}, t.enter()
	}
	if r.membership == nil || r.owners[slot] < 0 {
		return Place{}, false
	}
	owner := r.view.Members[r.owners[slot]]
	if owner.Address == "" || owner.ID == r.membership.self.ID {
		return Place{}, false
	}
	return Place{Peer: owner, View: r.view.Number}, true
}

func (r *routes) termOf(slot int) *Term {
	if r.all != nil {
		return r.all
	}
	return r.terms[slot]
}
