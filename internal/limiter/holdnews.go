package limiter

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/once"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A store that locks keys may keep its counts when the process that must end reservations dies. So that process publishes
// its reservations as news to the next one.

// holdNewsLives is the time by which the news of a reservation outlive it, so that its end can be written. A store that keeps
// news also returns those of reservations that ended while no process ran.
const holdNewsLives = time.Minute

// keepHold publishes reservation t, sealed as text, of units held for charges, so that the next process ends it if this one
// dies. It ignores failures.
func (r *reservations) keepHold(ctx context.Context, t *once.Token, text string, charges []demand.Charge) {
	if !r.inMemory || r.feed == nil || len(text) > store.MaxChangeDetails {
		return
	}
	for i := range charges {
		if c := &charges[i]; c.Decision.Recorded == count.RecordedYes && !c.Plan.EndsItself() {
			_ = r.feed.Publish(ctx, &store.Change{
				ID: r.ids.Next(r.now()), Kind: store.ChangeHold, Key: c.Key, Until: t.Ends, Details: text,
				TTL: clock.WholeSeconds(c.Hold) + holdNewsLives,
			})
			return
		}
	}
}

// heard queues the end of the reservation in c. Units under policies whose limits have changed since stay counted. If the
// first entry's policy has changed, all units stay.
func (r *reservations) heard(ctx context.Context, c *store.Change) {
	keys, err := r.secrets.Keyring(ctx)
	if err != nil || !r.inMemory {
		return
	}
	t, err := keys.Open(c.Details, once.Reserved)
	if err != nil {
		return
	}
	lasts, rest := t.Ends.Sub(t.Entries[0].At), t.Ends.Sub(r.now())
	held := &once.Token{Kind: t.Kind, Ends: t.Ends}
	var charges []demand.Charge
	for i := range t.Entries {
		n := &t.Entries[i]
		p, err := r.plans.planFor(n)
		switch {
		case err == nil && n.Sums == p.Sums:
			held.Entries = append(held.Entries, *n)
			d := count.Decision{Recorded: count.RecordedYes, Entry: n.Entry}
			charges = append(charges, demand.Charge{Target: demand.Target{Plan: p, Key: n.Key}, Decision: d})
		case i == 0: // the reservation's claim has the id of the first entry
			return
		}
	}
	r.pending.EndLater(held, charges, max(0, min(rest, lasts)))
}
