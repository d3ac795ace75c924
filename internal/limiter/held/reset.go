package held

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Reset forgets all that is counted for t in a store that holds keys still.
func Reset(ctx context.Context, in store.Exclusive, t *demand.Target, now store.Instant) error {
	queries := []store.Query{t.Plan.Query(t.Key, now, 1, nil)}
	for _, key := range t.Old {
		older := queries[0]
		older.Key = key
		queries = append(queries, older)
	}
	return in.UpdateAll(ctx, queries, func(states []store.State, writes []store.Write) {
		at := now
		for i := range states {
			if s := &states[i]; t.Plan.IsAhead(s, now) { // by a clock that was set back
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

// Forget forgets what store, of this instance alone, has counted for key up to at.
// There is nothing to be done about it if that fails.
func Forget(ctx context.Context, in store.Exclusive, key store.Key, at store.Instant, ttl time.Duration) {
	q := store.Query{Key: key, Counts: true, Tally: true, Cell: true}
	w := store.Write{Key: key, Reset: at, ResetTTL: ttl, Counts: true}
	for span := range store.SpanCount {
		q.Logs = append(q.Logs, store.LogQuery{Span: span, Max: 1})
		w.Logs = append(w.Logs, store.LogWrite{Span: span})
	}
	if s, err := in.Read(ctx, &q); err != nil || s.Empty() {
		return
	}
	_ = in.Update(ctx, &q, func(s *store.State, to *store.Write) {
		if s.Reset >= at {
			return
		}
		*to = w
		if version := s.Cell.Version; version != (store.EventID{}) {
			to.Cell = &store.CellWrite{If: version}
		}
	})
}
