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

// A store that holds keys still may keep its counts across restarts, but a process that dies takes
// with it who was to end its reservations. So it is news of its own to the process that comes
// after it.

// holdNewsLives is how much longer news of a reservation live than that: until its end was
// written. A store that keeps them tells those that ended while there was no process, too.
const holdNewsLives = time.Minute

// keepHold has whoever is started after this process end the reservation t, sealed as text, of what
// was held for charges. There is nothing to be done about it if that fails.
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

// heard ends the reservation that c tells of when it is over. What was counted under policies
// that are others since stays; all of it, where the reservation's first one is.
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
			charges = append(charges, demand.Charge{Target: demand.Target{Plan: p, Key: n.Key, Cell: n.Cell}, Decision: d})
		case i == 0: // which the reservation's claim is called after
			return
		}
	}
	r.pending.EndLater(held, charges, max(0, min(rest, lasts)))
}
