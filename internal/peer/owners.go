package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/seen"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Owners finds the decider of a key by the view that members agree on. It implements demand.Owners.
type Owners struct {
	cluster *cluster.Cluster
	pool    *Pool
}

var _ demand.Owners = (*Owners)(nil)

// NewOwners returns Owners that use c, and that reach other members by pool.
func NewOwners(c *cluster.Cluster, pool *Pool) *Owners { return &Owners{cluster: c, pool: pool} }

func hashOf(key store.Key) seen.Hash {
	a, b := key.Rest()
	return seen.Hash{A: a, B: b}
}

// SlotOf returns the slot that key belongs to.
func SlotOf(key store.Key) int { return cluster.SlotOf(key.Prefix()) }

// KeysOf returns a function that reports whether moves returns true for a key's slot. If moves is nil, so is the result.
func KeysOf(moves func(slot int) bool) func(store.Key) bool {
	if moves == nil {
		return nil
	}
	return func(key store.Key) bool { return moves(SlotOf(key)) }
}

// Place returns the decider of key; see demand.Owners.
func (o *Owners) Place(ctx context.Context, key store.Key) (demand.Place, error) {
	p, err := o.cluster.Enter(ctx, SlotOf(key))
	switch {
	case err != nil:
		return demand.Place{}, notYet(err)
	case p.Term != nil:
		return demand.Place{Term: term{p.Term}, View: p.View}, nil
	}
	l := o.pool.link(p.Peer)
	if l == nil {
		return demand.Place{}, notYet(errStopping)
	}
	return demand.Place{Owner: l, View: p.View}, nil
}

var errStopping = errors.New("this instance is stopping")

// notYet wraps err as an error of the store that has stored nothing.
func notYet(err error) error {
	return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, store.ErrNotStored, err)
}

// PlaceFor returns the term to decide a call for key that a peer handed on; see demand.Owners.
func (o *Owners) PlaceFor(ctx context.Context, key store.Key, view int64) (owner.Term, error) {
	t, err := o.cluster.EnterFor(ctx, SlotOf(key), view)
	switch {
	case errors.Is(err, cluster.ErrMoved):
		return nil, fmt.Errorf("%w: %w", owner.ErrRefused, err)
	case err != nil:
		return nil, notYet(err)
	}
	return term{t}, nil
}

// term is a cluster.Term as an owner.Term.
type term struct{ *cluster.Term }

// IsNew reports whether key certainly has no counted units.
func (t term) IsNew(key store.Key, life time.Duration) bool { return t.Term.IsNew(hashOf(key), life) }

// Note notes key before units of it are counted, which affect decisions for life.
func (t term) Note(key store.Key, life time.Duration) error {
	if !t.Owned() {
		return nil
	}
	if err := t.Term.Note(hashOf(key), time.Now().Add(life)); err != nil {
		return fmt.Errorf("%w: %w", owner.ErrTermEnded, err)
	}
	return nil
}

// Verify returns nil if the term still holds.
func (t term) Verify(ctx context.Context) error {
	ctx, span := tracing.Verify(ctx)
	err := t.Term.Verify(ctx)
	span.Verified(err)
	if errors.Is(err, cluster.ErrOut) {
		return fmt.Errorf("%w: %w", owner.ErrTermEnded, err)
	}
	return err
}
