package held

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// GiveBack takes out of the store what n counted for t.
func (x *Decider) GiveBack(ctx context.Context, t *demand.Target, n *count.Entry, sums bool, now store.Instant) error {
	var failed error
	q := t.Plan.Query(t.Key, now, 1, nil)
	err := x.Store.Update(ctx, &q, func(s *store.State, w *store.Write) { failed = x.TakeOut(t, n, sums, now, s, w) })
	return errors.Join(failed, err)
}

// TakeOut has w take out of s, which was read for t, what n counted.
func (x *Decider) TakeOut(t *demand.Target, n *count.Entry, sums bool, now store.Instant, s *store.State, w *store.Write) error {
	var c cas.Chain
	if t.Plan.Cell {
		var err error
		if c, err = cas.Open(t.Plan, s); err != nil {
			return err
		}
	}
	now = x.redate(t.Plan, s, now, w)
	if s.Reset >= n.At {
		return nil
	}
	w.Remove, w.Logs = []store.EventID{n.ID}, t.Plan.LogWrites
	if !sums {
		return nil
	}
	if n.Epoch == s.Reset {
		w.Add = t.Plan.AppendCounts(w.Add, n.Epoch, n.At, -n.Cost)
	}
	if t.Plan.Cell {
		t.Plan.GiveBack(s, n, now)
		cell := cas.Shut(t.Plan, nil, s, &c, x.ids.Next(now), now, x.opts)
		w.Cell = &cell
	}
	return nil
}
