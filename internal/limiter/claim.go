package limiter

import (
	"context"
	"errors"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// claims are cells that stand for something that may happen once: an idempotency key
// that is used, a receipt that is refunded, a reservation that is settled or over. Who
// makes the cell's first version, or changes the version that it read, has the say.
type claims struct {
	store  store.Store
	ids    *store.EventIDs
	opts   *Options
	serial policy.Level // claims are unique over a data centre or over the cluster, as it says
}

// Names of the spaces of claims' keys. No policy has such a name.
const (
	spaceSecret      = " secret"
	spaceIdempotency = " idempotency"
	spaceRefund      = " refund"
	spaceReservation = " reservation"
	spaceIdentity    = " identity"
)

// key returns the key of what is called name in space. It does not depend on the hash
// key, which may change meanwhile: name is a hash itself, or random.
func (c *claims) key(space string, name []byte) store.Key {
	keyer := keys.Keyer{Namespace: c.opts.Keyer.Namespace}
	of := keys.KeySpace{Policy: space, SerialLevel: string(c.serial)}
	if c.serial.Scope() == policy.ScopeDatacenter {
		of.Scope = c.opts.datacenter()
	}
	return keyer.For(of).Of(keys.Identifier(name))
}

// get returns the cell of key, the zero Cell if there is none.
func (c *claims) get(ctx context.Context, key store.Key, level policy.Level) (store.Cell, error) {
	s, err := c.opts.readPatiently(ctx, c.store, &store.Query{Key: key, Level: level, Cell: true, ExpireAfter: c.opts.timing.Instant()})
	return s.Cell, err
}

// serialReads is how often a serial read is tried: where others compare and set the
// same cell it is refused at once, and may be the next time again.
const serialReads = 5

// readPatiently reads, and at a serial level tries again what is refused.
func (o *Options) readPatiently(ctx context.Context, store store.Store, q *store.Query) (s store.State, err error) {
	tries := 1
	if q.Level == policy.LevelSerial || q.Level == policy.LevelLocalSerial {
		tries = serialReads
	}
	for wait := conflictWait; ; wait *= 2 {
		s, err = store.Read(ctx, q)
		if tries--; err == nil || tries == 0 || pause(ctx, wait/2+o.jitter(wait)) != nil {
			return s, err
		}
	}
}

// swap puts value in the place of the version that is expected, and returns its own.
// The error is ErrConflict when the cell has another version. An attempt without an
// answer is looked into and repeated until ctx ends.
func (c *claims) swap(ctx context.Context, key store.Key, expected store.EventID, value []byte, ttl time.Duration) (store.EventID, error) {
	w := &store.Write{Key: key, Level: c.serial.Quorum()}
	var tried []store.EventID
	for {
		w.Cell = &store.CellWrite{
			If: expected, Version: c.ids.Next(c.opts.timing.Instant()), Value: value, TTL: clock.WholeSeconds(ttl), Serial: c.serial,
		}
		tried = append(tried, w.Cell.Version)
		err := c.attempt(ctx, w)
		if err == nil {
			return w.Cell.Version, nil
		}
		if len(tried) == 1 && (errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotStored)) {
			return store.EventID{}, err
		}
		cell, readErr := c.get(ctx, key, c.serial)
		for _, version := range tried {
			if readErr == nil && cell.Version == version {
				return version, nil
			}
		}
		if readErr == nil && cell.Version != expected {
			return store.EventID{}, store.ErrConflict
		}
		if ctx.Err() != nil || pause(ctx, c.opts.jitter(conflictWait)) != nil {
			return store.EventID{}, store.Untold(err)
		}
	}
}

// attempt makes one conditional write, in a part of the time there is.
func (c *claims) attempt(ctx context.Context, w *store.Write) error {
	ctx, cancel := context.WithTimeout(ctx, c.opts.StoreTimeout/serialTries)
	defer cancel()
	return c.store.Write(ctx, w)
}

// claimsOf returns where something about charges can happen once: as far as the
// promises of all of their policies reach.
func (e *Engine) claimsOf(charges []charge) *claims {
	plans := make([]*plan, len(charges))
	for i := range charges {
		plans[i] = charges[i].plan
	}
	return e.claimsAbout(plans)
}

func (e *Engine) claimsAbout(plans []*plan) *claims {
	for _, p := range plans {
		if !p.regional {
			return e.anywhere
		}
	}
	return e.claims
}
