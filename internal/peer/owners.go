package peer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/seen"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Owners finds the decider of a key by the view that members agree on. It implements owner.Owners.
type Owners struct {
	cluster *cluster.Cluster
	pool    *Pool
}

var _ owner.Owners = (*Owners)(nil)

// NewOwners returns Owners that use c, and reach other members over pool.
func NewOwners(c *cluster.Cluster, pool *Pool) *Owners { return &Owners{cluster: c, pool: pool} }

func hashOf(key store.Key) seen.Hash {
	a, b := key.Rest()
	return seen.Hash{A: a, B: b}
}

// SlotOf returns the slot that key belongs to.
func SlotOf(key store.Key) int { return cluster.SlotOf(key.Prefix()) }

// KeysOf returns moves for the keys of the slots; nil stays nil.
func KeysOf(moves func(slot int) bool) func(store.Key) bool {
	if moves == nil {
		return nil
	}
	return func(key store.Key) bool { return moves(SlotOf(key)) }
}

// Place returns the decider of key; see owner.Owners.
func (o *Owners) Place(ctx context.Context, key store.Key) (owner.Place, error) {
	p, err := o.cluster.Enter(ctx, SlotOf(key))
	switch {
	case err != nil:
		return owner.Place{}, notYet(err)
	case p.Term != nil:
		return owner.Place{Right: (*right)(p.Term), View: p.View}, nil
	}
	l := o.pool.link(p.Peer)
	if l == nil {
		return owner.Place{}, notYet(errStopping)
	}
	return owner.Place{Owner: l, View: p.View}, nil
}

var errStopping = errors.New("this instance is stopping")

// notYet returns err wrapped as an error of the store after which nothing is stored.
func notYet(err error) error {
	return fmt.Errorf("%w: %w: %w", store.ErrUnavailable, store.ErrNotStored, err)
}

// PlaceFor returns the right to decide a call for key that a peer handed on; see owner.Owners.
func (o *Owners) PlaceFor(ctx context.Context, key store.Key, view int64) (owner.Right, error) {
	t, err := o.cluster.EnterFor(ctx, SlotOf(key), view)
	switch {
	case errors.Is(err, cluster.ErrMoved):
		return nil, fmt.Errorf("%w: %w", owner.ErrRefused, err)
	case err != nil:
		return nil, notYet(err)
	}
	return (*right)(t), nil
}

// right is a term as an owner.Right.
type right cluster.Term

// Owned reports whether this instance alone decides.
func (r *right) Owned() bool { return (*cluster.Term)(r).Owned() }

// Began returns when the term began.
func (r *right) Began() time.Time { return (*cluster.Term)(r).Began() }

// IsNew reports whether nothing is counted for key.
func (r *right) IsNew(key store.Key, life time.Duration) bool {
	return (*cluster.Term)(r).IsNew(hashOf(key), life)
}

// Note notes that units are about to be counted for key.
func (r *right) Note(key store.Key, life time.Duration) error {
	t := (*cluster.Term)(r)
	if !t.Owned() {
		return nil
	}
	if err := t.Note(hashOf(key), time.Now().Add(life)); err != nil {
		return fmt.Errorf("%w: %w", owner.ErrRightEnded, err)
	}
	return nil
}

// Leave ends this use of the right.
func (r *right) Leave() { (*cluster.Term)(r).Leave() }

// Verified returns when the latest successful check began.
func (r *right) Verified() time.Time { return (*cluster.Term)(r).Verified() }

// Verify returns nil if the right still holds.
func (r *right) Verify(ctx context.Context) error {
	ctx, span := tracing.Verify(ctx)
	err := (*cluster.Term)(r).Verify(ctx)
	span.Verified(err)
	if errors.Is(err, cluster.ErrOut) {
		return fmt.Errorf("%w: %w", owner.ErrRightEnded, err)
	}
	return err
}
