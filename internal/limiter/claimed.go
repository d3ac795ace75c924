package limiter

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/judge"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/settle"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// claimed has the parts of an engine for actions that may happen only once, each after a claim.
type claimed struct {
	secrets      *once.Secrets
	marks        *once.Marks
	refunds      *refunds
	repetitions  *repetitions
	reservations *reservations
}

// newClaimed returns the parts of an engine over s. feed may be nil.
func newClaimed(b *basis, s store.Store, feed store.Feed, plans *plans, j *judge.Judge, teller *teller) claimed {
	claims := once.NewScopes(s, b.ids, b.settings)
	secrets := &once.Secrets{Claims: claims.Anywhere}
	marks := &once.Marks{Claims: &claims}
	refunds := &refunds{basis: b, plans: plans, claims: &claims, secrets: secrets, marks: marks}
	pending := once.NewReservations(&claims, b.settings, b.decider.Instant, refunds.giveAllBack)
	return claimed{
		marks:   marks,
		secrets: secrets,
		refunds: refunds,
		repetitions: &repetitions{
			basis: b, store: s, judge: j, claims: &claims, secrets: secrets, refunds: refunds, identities: identities(b.settings),
		},
		reservations: &reservations{
			basis: b, plans: plans, judge: j, secrets: secrets, refunds: refunds, pending: pending, feed: feed,
			settler: &settle.Settler{Judge: j, Claims: &claims, Pending: pending, PlanFor: plans.planFor, InMemory: b.inMemory},
		},
	}
}

// byClaim decides a call with an idempotency key or a reservation, within one store timeout.
func (c *claimed) byClaim(ctx context.Context, call *Call, charges []demand.Charge) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.repetitions.settings.StoreTimeout)
	defer cancel()
	switch {
	case call.Reservation != "": // a reservation is settled once anyway, so an idempotency key is not needed
		return c.reservations.settleReservation(ctx, call, charges)
	case call.Reserve > 0:
		return c.reservations.reserve(ctx, call, charges)
	}
	return c.repetitions.once(ctx, call, charges)
}
