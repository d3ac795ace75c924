package once

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Claims are cells for things that may happen once: an idempotency key is used, a receipt is refunded, a reservation is
// settled or ends. The caller that writes the cell's first version, or replaces the version that it read, wins.
type Claims struct {
	store  store.Store
	ids    *store.EventIDs
	opts   *demand.Settings
	Serial policy.Level // of compare-and-set: claims are unique within its scope, a data centre or the cluster
}

// Names of the key spaces of claims. They take the place of a policy's name, and no policy has such a name.
const (
	spaceSecret      = " secret"
	SpaceIdempotency = " idempotency"
	SpaceRefund      = " refund"
	SpaceReservation = " reservation"
	SpaceIdentity    = " identity"
	SpaceConfirmed   = " confirmed"
	SpaceKnown       = " known"
)

// Key returns the key of name in space. It does not depend on the hash key, which may change during the life of a claim:
// name is already a hash, or random.
func (c *Claims) Key(space string, name []byte) store.Key {
	keyer := keys.Keyer{Namespace: c.opts.Keyer.Namespace}
	in := keys.KeySpace{Policy: space, SerialLevel: string(c.Serial)}
	if c.Serial.Scope() == policy.ScopeDatacenter {
		in.Scope = c.opts.Region()
	}
	return keyer.For(in).Of(keys.Identifier(name))
}

// Get returns the cell of key, the zero Cell if there is none.
func (c *Claims) Get(ctx context.Context, key store.Key, level policy.Level) (store.Cell, error) {
	s, err := cas.ReadPatiently(ctx, c.opts, c.store, &store.Query{Key: key, Level: level, Cell: true, ExpireAfter: c.opts.Timing.Instant()})
	return s.Cell, err
}

// Swap writes value if the cell has the expected version, and returns the new version. The error is ErrConflict if the
// cell has another version. After an attempt without an answer, Swap reads the cell, and tries again until ctx ends.
func (c *Claims) Swap(ctx context.Context, key store.Key, expected store.EventID, value []byte, ttl time.Duration) (store.EventID, error) {
	return c.SwapFor(ctx, 0, key, expected, value, ttl)
}

// SwapFor is Swap for a claim of owner, a hash. A store may bound the number of claims of each owner.
func (c *Claims) SwapFor(
	ctx context.Context, owner uint64, key store.Key, expected store.EventID, value []byte, ttl time.Duration,
) (store.EventID, error) {
	w := &store.Write{Key: key, Level: c.Serial.Quorum()}
	var tried []store.EventID
	for {
		w.Cell = &store.CellWrite{
			If: expected, Version: c.ids.Next(c.opts.Timing.Instant()), Value: value, TTL: clock.WholeSeconds(ttl), Serial: c.Serial,
			Claim: ttl > 0, Owner: owner,
		}
		tried = append(tried, w.Cell.Version)
		err := cas.Attempt(ctx, c.opts, c.store, w)
		if err == nil {
			return w.Cell.Version, nil
		}
		if len(tried) == 1 && (errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotStored)) {
			return store.EventID{}, err
		}
		cell, readErr := c.Get(ctx, key, c.Serial)
		switch {
		case readErr == nil && slices.Contains(tried, cell.Version):
			return cell.Version, nil
		case readErr == nil && cell.Version != expected:
			return store.EventID{}, store.ErrConflict
		}
		if ctx.Err() != nil || clock.Pause(ctx, c.opts.Jitter(cas.ConflictWait)) != nil {
			return store.EventID{}, store.Untold(err)
		}
	}
}

// first claims key with value, unless the key has a claim, and returns its first claim. before is true if an earlier call
// made it.
func (c *Claims) first(ctx context.Context, key store.Key, value []byte, ttl time.Duration) (cell store.Cell, before bool, err error) {
	version, err := c.Swap(ctx, key, store.EventID{}, value, ttl)
	if !errors.Is(err, store.ErrConflict) {
		return store.Cell{Version: version, Value: value}, false, err
	}
	cell, err = c.Get(ctx, key, c.Serial)
	return cell, true, err
}

// Release removes the cell if it has this version. If the store does not answer, the cell may remain.
func (c *Claims) Release(ctx context.Context, key store.Key, version store.EventID) {
	w := &store.Write{Key: key, Level: c.Serial.Quorum(), Cell: &store.CellWrite{If: version, Serial: c.Serial}}
	_ = cas.Attempt(ctx, c.opts, c.store, w)
}

// Scopes are the two scopes within which something can happen once: a data centre, and the whole cluster.
type Scopes struct{ regional, Anywhere *Claims }

// NewScopes returns the Scopes of a store.
func NewScopes(store store.Store, ids *store.EventIDs, set *demand.Settings) Scopes {
	return Scopes{
		regional: &Claims{store: store, ids: ids, opts: set, Serial: set.Serial},
		Anywhere: &Claims{store: store, ids: ids, opts: set, Serial: policy.LevelSerial},
	}
}

// Of returns the claims for something about charges that may happen once. Their scope is the widest of the guarantees of
// the charges' policies.
func (s *Scopes) Of(charges []demand.Charge) *Claims {
	plans := make([]*demand.Plan, len(charges))
	for i := range charges {
		plans[i] = charges[i].Plan
	}
	return s.About(plans)
}

// About is Of for plans.
func (s *Scopes) About(plans []*demand.Plan) *Claims {
	if slices.ContainsFunc(plans, func(p *demand.Plan) bool { return !p.Regional }) {
		return s.Anywhere
	}
	return s.regional
}

// Fate says how an entry of a receipt has ended. It is the value of the entry's claim.
type Fate byte

// The fates of entries.
const (
	Refunded  Fate = 1
	Confirmed Fate = 'c'
)

// Said is the first claim of an entry.
type Said struct {
	Fate   Fate          // 0: unknown
	At     store.Instant // when it was claimed
	Before bool          // an earlier call made it
}

// Claim claims the entry with this id for fate, unless it has a claim, and returns its first claim.
func (c *Claims) Claim(ctx context.Context, id store.EventID, fate Fate, ttl time.Duration) (Said, error) {
	cell, before, err := c.first(ctx, c.Key(SpaceRefund, id[:]), []byte{byte(fate)}, ttl)
	said := Said{Before: before}
	if err == nil && len(cell.Value) == 1 {
		said.Fate, said.At = Fate(cell.Value[0]), cell.Version.Instant()
	}
	return said, err
}

// First reports whether id is the first to claim name in space within ttl. It returns the same for the same id again.
func (c *Claims) First(ctx context.Context, space string, name []byte, id store.EventID, ttl time.Duration) (first bool, err error) {
	cell, _, err := c.first(ctx, c.Key(space, name), id[:], ttl)
	return err == nil && bytes.Equal(cell.Value, id[:]), err
}

// Renew makes the cell of key live for ttl from now on, unless it is younger than age.
func (c *Claims) Renew(ctx context.Context, key store.Key, age, ttl time.Duration) error {
	cell, err := c.Get(ctx, key, c.Serial.Quorum())
	if err != nil || cell.Version != (store.EventID{}) && c.opts.Timing.Instant() < cell.Version.Instant().Add(age) {
		return err
	}
	_, err = c.Swap(ctx, key, cell.Version, []byte{1}, ttl)
	if errors.Is(err, store.ErrConflict) { // another instance came first
		return nil
	}
	return err
}

// Forget empties the cell of key, if there is one.
func (c *Claims) Forget(ctx context.Context, key store.Key) error {
	for {
		cell, err := c.Get(ctx, key, c.Serial)
		if err != nil || len(cell.Value) == 0 {
			return err
		}
		if _, err = c.Swap(ctx, key, cell.Version, nil, time.Minute); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// The states of a reservation whose hold needs a write to end. They are the first byte of a claim's value.
const (
	ReservationSettled = 's' // its units are recorded: the held ones, or the costs that follow, one for each entry
	reservationBegun   = 'b' // units that were given back are about to be recorded again
	ReservationFree    = 'f' // units were to be recorded again, and certainly were not
	ReservationOver    = 'o' // its time has ended: the units were given back
)

// Ending says how a reservation has ended, by the first claim.
type Ending struct {
	What   byte          // ReservationSettled or ReservationOver
	Costs  []int64       // of its entries, if it was settled; nil: the units that it held
	At     store.Instant // the time of the claim
	Before bool          // an earlier claim was the first
}

// Reservation claims that t has ended in this state, unless it has a claim, and returns the first claim. Nil costs mean
// the held units.
func (c *Claims) Reservation(ctx context.Context, t *Token, state byte, costs []int64) (Ending, error) {
	key := c.Key(SpaceReservation, t.Entries[0].ID[:])
	cell, before, err := c.first(ctx, key, AppendCosts([]byte{state}, costs), 2*MaxReserve)
	if err != nil || len(cell.Value) == 0 {
		return Ending{}, err
	}
	first := Ending{What: cell.Value[0], At: cell.Version.Instant(), Before: before}
	first.Costs, err = costsOf(cell.Value[1:], len(t.Entries))
	return first, err
}

// AppendCosts appends costs to b, a claim's value.
func AppendCosts(b []byte, costs []int64) []byte {
	for _, n := range costs {
		b = binary.AppendVarint(b, n)
	}
	return b
}

// costsOf reads the costs of so many entries as AppendCosts wrote them; nil if there are none.
func costsOf(b []byte, entries int) (costs []int64, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := store.Reader{B: b}
	for range entries {
		costs = append(costs, r.Int())
	}
	if r.Bad || len(r.B) > 0 || slices.ContainsFunc(costs, func(n int64) bool { return n < 0 }) {
		return nil, fmt.Errorf("%w: the stored claim of a reservation can't be read", store.ErrUnavailable)
	}
	return costs, nil
}

// BeginAnew claims key for a new record of a reservation's units. done is true if they were recorded before; costs are
// then those of so many entries, nil if they are the units that the reservation held.
func (c *Claims) BeginAnew(ctx context.Context, key store.Key, entries int) (version store.EventID, done bool, costs []int64, err error) {
	var expected store.EventID
	for range 2 { // the second round replaces a claim that is free
		version, err = c.Swap(ctx, key, expected, []byte{reservationBegun}, 2*MaxReserve)
		if !errors.Is(err, store.ErrConflict) {
			return version, false, nil, err
		}
		var cell store.Cell
		cell, err = c.Get(ctx, key, c.Serial)
		switch {
		case err != nil:
			return store.EventID{}, false, nil, err
		case len(cell.Value) > 0 && cell.Value[0] == ReservationSettled:
			costs, err = costsOf(cell.Value[1:], entries)
			return store.EventID{}, true, costs, err
		case !bytes.Equal(cell.Value, []byte{ReservationFree}):
			err = fmt.Errorf("%w: an earlier record of this reservation ended without an answer", store.ErrUnavailable)
			return store.EventID{}, false, nil, err
		}
		expected = cell.Version
	}
	return store.EventID{}, false, nil, fmt.Errorf("%w: this reservation is being recorded elsewhere", store.ErrUnavailable)
}
