package exclusive

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// GiveBack removes n's units for t from the store; from counters and cells only if sums is true.
func (x *Decider) GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool) error {
	now := x.opts.Timing.Instant()
	var failed error
	q := t.Plan.Query(t.Key, now, 1, nil)
	err := x.store.Update(ctx, &q, func(s *store.State, w *store.Write) { failed = x.takeOut(t, n, sums, now, s, w) })
	return errors.Join(failed, err)
}

// EndHold gives back, only once, the units that n holds for t until end. In the same step it writes the cell of end, which
// marks this as done.
func (x *Decider) EndHold(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, end demand.HoldEnd) error {
	held, now := *n, x.opts.Timing.Instant()
	held.Held = end.At.Sub(n.At)
	queries := []store.Query{t.Plan.Query(t.Key, now, 1, nil), {Key: end.Mark, Cell: true, ExpireAfter: now}}
	var failed error
	err := x.store.UpdateAll(ctx, queries, func(s []store.State, w []store.Write) {
		if s[1].Cell.Version != (store.EventID{}) {
			return
		}
		if failed = x.takeOut(t, &held, sums, now, &s[0], &w[0]); failed == nil {
			w[1].Cell = &store.CellWrite{Version: x.ids.Next(now), Value: []byte{1}, TTL: end.Kept}
		}
	})
	return errors.Join(failed, err)
}

// takeOut makes w remove n's units from s, which was read for t; from counters and cells only if sums is true.
func (x *Decider) takeOut(t *demand.Target, n *count.Entry, sums bool, now store.Instant, s *store.State, w *store.Write) error {
	var c cas.Chain
	if t.Plan.Cell {
		var err error
		if c, err = cas.Open(t.Plan, s); err != nil {
			return err
		}
	}
	if t.Plan.IsAhead(s, now) {
		now = x.redate(t.Plan, s, now, w)
	}
	if s.Reset >= n.At || t.Plan.Cell && n.Claimed > 0 && !s.Applied.Note(n.ID, n.Claimed, now, store.MaxApplied) {
		return nil
	}
	back := t.Plan.GivesBack(n)
	if back && n.Kept == 0 {
		w.Remove, w.Logs = []store.EventID{n.ID}, t.Plan.LogWrites
	}
	if !sums {
		return nil
	}
	if back && n.Epoch == s.Reset && !n.Again {
		w.Add = t.Plan.AppendCounts(w.Add, n.Epoch, n.At, -n.Cost)
	}
	if t.Plan.Cell {
		t.Plan.GiveBack(s, n, now)
		cell := cas.Shut(t.Plan, nil, s, &c, x.ids.Next(now), now, x.opts)
		w.Cell = &cell
	}
	return nil
}

// SettleEvent makes n's held event permanent, if t keeps events.
func (x *Decider) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry) error {
	if len(t.Plan.Logs) == 0 {
		return nil
	}
	return x.store.Write(ctx, t.Settling(n))
}
