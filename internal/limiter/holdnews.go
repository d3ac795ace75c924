package limiter

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
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
func (e *Engine) keepHold(ctx context.Context, t *token, text string, charges []charge) {
	if e.exclusive == nil || e.opts.Feed == nil || len(text) > store.MaxChangeDetails {
		return
	}
	for i := range charges {
		if c := &charges[i]; c.decision.Recorded == count.RecordedYes && !c.plan.EndsItself() {
			_ = e.opts.Feed.Publish(ctx, &store.Change{
				ID: e.ids.Next(e.now()), Kind: store.ChangeHold, Key: c.key, Until: t.ends, Details: text,
				TTL: clock.WholeSeconds(c.hold) + holdNewsLives,
			})
			return
		}
	}
}

// heardHold ends the reservation that c tells of when it is over. What was counted under policies
// that are others since stays; all of it, where the reservation's first one is.
func (e *Engine) heardHold(ctx context.Context, c *store.Change) {
	keys, err := e.secrets.keyring(ctx)
	if err != nil || e.exclusive == nil {
		return
	}
	t, err := keys.open(c.Details, tokenReservation)
	if err != nil {
		return
	}
	lasts, rest := t.ends.Sub(t.entries[0].At), t.ends.Sub(e.now())
	held := &token{kind: t.kind, ends: t.ends}
	var charges []charge
	for i := range t.entries {
		n := &t.entries[i]
		p, err := e.planFor(n)
		switch {
		case err == nil && n.sums == p.sums:
			held.entries = append(held.entries, *n)
			d := count.Decision{Recorded: count.RecordedYes, Entry: n.Entry}
			charges = append(charges, charge{target: target{plan: p, key: n.key, cell: n.cell}, decision: d})
		case i == 0: // which the reservation's claim is called after
			return
		}
	}
	e.reservations.endLater(held, charges, max(0, min(rest, lasts)))
}

// endHold gives back, once, what n holds for t until an instant, in a store that holds keys still. What
// it changes and the mark that it did so are one.
func (e *Engine) endHold(ctx context.Context, t *target, n *count.Entry, sums bool, ends store.Instant) error {
	held, now := *n, e.now()
	held.Held = ends.Sub(n.At)
	mark := e.claimsAbout([]*plan{t.plan}).key(spaceReservation, append([]byte("given back"), n.ID[:]...))
	queries := []store.Query{t.plan.Query(t.key, now, 1, nil), {Key: mark, Cell: true, ExpireAfter: now}}
	var failed error
	err := e.exclusive.store.UpdateAll(ctx, queries, func(s []store.State, w []store.Write) {
		if s[1].Cell.Version != (store.EventID{}) {
			return
		}
		if failed = e.exclusive.takeOut(t, &held, sums, now, &s[0], &w[0]); failed == nil {
			w[1].Cell = &store.CellWrite{Version: e.ids.Next(now), Value: []byte{reservationOver}, TTL: 2 * MaxReserve}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}
