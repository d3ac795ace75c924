package once

import (
	"context"
	"errors"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Marks remember the parts of identifiers that a confirmation has made known. A mark is a cell whose key is the hash of the
// part's key. It expires after policy.KnownFor.
type Marks struct{ Claims *Scopes }

// Known reports for each of all whether it is known. A mark counts as unknown if the store does not answer.
func (m *Marks) Known(ctx context.Context, all []demand.Mark) []bool {
	known := make([]bool, len(all))
	var asked sync.WaitGroup
	for i := range all {
		t := &all[i].Target
		claims := m.Claims.About([]*demand.Plan{t.Plan})
		for _, key := range append([]store.Key{t.Key}, t.OldKeys...) {
			asked.Go(func() {
				cell, err := claims.Get(ctx, claims.Key(SpaceKnown, key.AppendTo(nil)), claims.Serial.Quorum())
				if err == nil && len(cell.Value) > 0 {
					known[i] = true
				}
			})
		}
	}
	asked.Wait()
	return known
}

// renewAfter is the age at which a confirmation renews a mark.
const renewAfter = policy.KnownFor / 30

// Renew writes or renews the marks of a confirmation. planOf returns the plan of a policy in force, or nil.
func (m *Marks) Renew(ctx context.Context, all []Mark, planOf func(name string) *demand.Plan) error {
	errs := make([]error, len(all))
	var made sync.WaitGroup
	for i := range all {
		p := planOf(all[i].Policy)
		if p == nil || p.Keys[0].ID() != all[i].Space {
			continue // the policy is gone or has other keys, so no call reads this mark
		}
		made.Go(func() {
			claims := m.Claims.About([]*demand.Plan{p})
			errs[i] = claims.Renew(ctx, claims.Key(SpaceKnown, all[i].Key.AppendTo(nil)), renewAfter, policy.KnownFor)
		})
	}
	made.Wait()
	return errors.Join(errs...)
}

// Forget removes the mark of t.
func (m *Marks) Forget(ctx context.Context, t *demand.Target) error {
	claims := m.Claims.About([]*demand.Plan{t.Plan})
	for _, key := range append([]store.Key{t.Key}, t.OldKeys...) {
		if err := claims.Forget(ctx, claims.Key(SpaceKnown, key.AppendTo(nil))); err != nil {
			return err
		}
	}
	return nil
}
