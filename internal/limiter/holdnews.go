package limiter

import (
	"context"
	"time"
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
	if e.exclusive == nil || e.opts.Feed == nil || len(text) > MaxChangeDetails {
		return
	}
	for i := range charges {
		if c := &charges[i]; c.decision.Recorded == RecordedYes && !c.plan.endsItself() {
			_ = e.opts.Feed.Publish(ctx, &Change{
				ID: e.ids.next(e.now()), Kind: ChangeHold, Key: c.key, Until: t.ends, Details: text, TTL: wholeSeconds(c.hold) + holdNewsLives,
			})
			return
		}
	}
}

// heardHold ends the reservation that c tells of when it is over. What was counted under policies
// that are others since stays; all of it, where the reservation's first one is.
func (e *Engine) heardHold(ctx context.Context, c *Change) {
	keys, err := e.secrets.keyring(ctx)
	if err != nil || e.exclusive == nil {
		return
	}
	t, err := keys.open(c.Details, tokenReservation)
	if err != nil {
		return
	}
	lasts, rest := t.ends.Sub(t.entries[0].at), t.ends.Sub(e.now())
	held := &token{kind: t.kind, ends: t.ends}
	var charges []charge
	for i := range t.entries {
		n := &t.entries[i]
		p, err := e.planFor(n)
		switch {
		case err == nil && n.sums == p.sums:
			held.entries = append(held.entries, *n)
			d := Decision{Recorded: RecordedYes, entry: n.entry}
			charges = append(charges, charge{target: target{plan: p, key: n.key, cell: n.cell}, decision: d})
		case i == 0: // which the reservation's claim is called after
			return
		}
	}
	e.reservations.endLater(held, charges, max(0, min(rest, lasts)))
}

// endHold gives back, once, what n holds for t until an instant, in a store that holds keys still. What
// it changes and the mark that it did so are one.
func (e *Engine) endHold(ctx context.Context, t *target, n *entry, sums bool, ends Instant) error {
	held, now := *n, e.now()
	held.held = ends.Sub(n.at)
	mark := e.claimsAbout([]*plan{t.plan}).key(spaceReservation, append([]byte("given back"), n.id[:]...))
	queries := []Query{t.plan.query(t.key, now, 1, nil), {Key: mark, Cell: true, ExpireAfter: now}}
	var failed error
	err := e.exclusive.store.UpdateAll(ctx, queries, func(s []State, w []Write) {
		if s[1].Cell.Version != (EventID{}) {
			return
		}
		if failed = e.exclusive.takeOut(t, &held, sums, now, &s[0], &w[0]); failed == nil {
			w[1].Cell = &CellWrite{Version: e.ids.next(now), Value: []byte{reservationOver}, TTL: 2 * MaxReserve}
		}
	})
	if failed != nil {
		return failed
	}
	return err
}
