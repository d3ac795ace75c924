package exclusive

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reset removes all units of t. The error is a StoreError.
func (x *Decider) Reset(ctx context.Context, t *demand.Target) error {
	if err := x.reset(ctx, t, x.opts.Timing.Instant()); err != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	return nil
}

func (x *Decider) reset(ctx context.Context, t *demand.Target, now store.Instant) error {
	queries := []store.Query{t.Plan.Query(t.Key, now, 1, nil)}
	for _, key := range t.OldKeys {
		older := queries[0]
		older.Key = key
		queries = append(queries, older)
	}
	return x.store.UpdateAll(ctx, queries, func(states []store.State, writes []store.Write) {
		at := now
		for i := range states {
			if s := &states[i]; t.Plan.IsAhead(s, now) { // the clock was set back
				writes[i].Present, s.Reset = now, min(s.Reset, now-1)
			}
			at = max(at, states[i].Reset+1)
		}
		for i := range writes {
			w := &writes[i]
			w.Reset, w.ResetTTL = at, t.Plan.ResetTTL
			w.Logs, w.Counts = t.Plan.LogWrites, t.Plan.Counters
			if t.Plan.Cell {
				w.Cell = &store.CellWrite{If: states[i].Cell.Version}
			}
		}
	})
}

// Forget removes the units of key up to the reset at, which is kept for ttl. It ignores a failure.
func (x *Decider) Forget(ctx context.Context, key store.Key, at store.Instant, ttl time.Duration) {
	q := store.Query{Key: key, Counts: true, Tally: true, Cell: true}
	w := store.Write{Key: key, Reset: at, ResetTTL: ttl, Counts: true}
	for span := range store.SpanCount {
		q.Logs = append(q.Logs, store.LogQuery{Span: span, Max: 1})
		w.Logs = append(w.Logs, store.LogWrite{Span: span})
	}
	if s, err := x.store.Read(ctx, &q); err != nil || s.Empty() {
		return
	}
	_ = x.store.Update(ctx, &q, func(s *store.State, to *store.Write) {
		if s.Reset >= at {
			return
		}
		*to = w
		if version := s.Cell.Version; version != (store.EventID{}) {
			to.Cell = &store.CellWrite{If: version}
		}
	})
}
