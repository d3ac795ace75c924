package cas

import (
	"cmp"
	"context"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// SettleEvent makes n's held event permanent in the log beside t's cell, unless it was removed. In the log the last
// write of an event wins, so the write's condition must establish that the event is there, or that it expired by
// itself. SettleEvent reads as far back as that needs.
func (x *Decider) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry, removed func() (bool, error)) error {
	if len(t.Plan.Logs) == 0 {
		return nil
	}
	for own := 1; ; own *= 2 {
		hidden, untold := false, error(nil)
		err := x.update(ctx, t, own, func(s *store.State, _ store.Instant, w *store.Write) bool {
			events := s.Logs[0].Events
			gone := !slices.ContainsFunc(events, func(e store.Event) bool { return e.ID == n.ID })
			hidden = gone && settledAmong(events) >= t.Plan.Logs[0].Limit+own
			if gone && !hidden {
				gone, untold = removed()
			}
			if gone || s.Reset >= n.At {
				return false
			}
			w.Events, w.Settle = []store.Event{{ID: n.ID, At: n.At, Cost: n.Cost}}, true
			return true
		})
		if err = cmp.Or(err, untold); err != nil || !hidden {
			return err
		}
	}
}

// settledAmong returns the number of events that are no holds.
func settledAmong(events []store.Event) (n int) {
	for i := range events {
		if events[i].Ends == 0 {
			n++
		}
	}
	return n
}
