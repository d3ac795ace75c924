package cassandra

import (
	"context"
	"errors"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// maxWrittenAndRead is the most keys of a trip that writes to them and then reads them, by two batches and one read. With one
// batch, reads had too few keys, and new callers cost a fifth more than with two or three.
const maxWrittenAndRead = 2 * maxWritten

// writeRead is a write to one key and the read of it that follows.
type writeRead struct {
	write item[*keyWrite]
	read  item[*keyRead]
}

// unreadError is the error of a read whose write is stored.
type unreadError struct{ err error }

func (e *unreadError) Error() string { return e.err.Error() }
func (e *unreadError) Unwrap() error { return e.err }

// WriteThenRead stores w and then reads q, which has the same key. If each needs one request, both are one trip, and keys that
// are written together are read together. In between they wait neither for another trip nor for callers to wake up.
func (s *Store) WriteThenRead(
	ctx context.Context, w *store.Write, q *store.Query,
) (state store.State, wrote bool, err error) {
	write, l, ok := s.bothWaysOf(w, q)
	if !ok {
		return store.InTwoSteps(ctx, s, w, q)
	}
	r := &keyRead{key: write.key, after: q.ExpireAfter}
	if !l.tally {
		r.query = &q.Logs[0]
	}
	both := &writeRead{write: item[*keyWrite]{request: &write, parts: len(write.entries)}, read: item[*keyRead]{request: r}}
	err = s.written.do(ctx, l, both, both.write.parts, func(ctx context.Context) error {
		if err := s.writeKeyAlone(ctx, l.level, write.entries); err != nil {
			return err
		}
		return unread(s.readAlone(ctx, l.ofRead(), r))
	})
	failed, isRead := errors.AsType[*unreadError](err)
	switch {
	case isRead:
		return store.State{}, true, conn.Unavailable("reading", failed.err)
	case err != nil:
		return store.State{}, false, written(err, 1)
	case l.tally:
		return store.State{Counts: r.counts, Reset: r.reset}, true, nil
	}
	return store.State{Logs: []store.Log{r.log}, Reset: r.reset}, true, nil
}

// bothWaysOf returns w as a keyWrite, and the lane of w and the read of q. It returns false if w and q can't share a trip.
func (s *Store) bothWaysOf(w *store.Write, q *store.Query) (write keyWrite, l lane, ok bool) {
	if !canGoBothWays(w, q) {
		return keyWrite{}, lane{}, false
	}
	level, err := levelOf(w.Level)
	then, errThen := levelOf(q.Level)
	write, span, ok := keyWriteOf(w)
	if err != nil || errThen != nil || !ok {
		return keyWrite{}, lane{}, false
	}
	l = s.laneOf(write.key, span, level)
	l.then = then
	if q.Tally {
		return write, l.ofTallies(), true
	}
	return write, l.reading(q.Logs[0].After, store.InstantOf(s.config.Now())), true
}

// canGoBothWays reports whether q reads, by one request, the log or the table of running totals to which w writes.
func canGoBothWays(w *store.Write, q *store.Query) bool {
	switch {
	case q.Cell || q.Counts:
		return false
	case len(w.Put) > 0:
		return q.Tally && len(q.Logs) == 0 && q.Span == w.Span
	}
	return !q.Tally && len(q.Logs) == 1 && len(w.Logs) == 1 &&
		q.Logs[0].Span == w.Logs[0].Span && q.Logs[0].Max <= maxReadTogether
}

// bothWays returns a sender of trips that write and, once all writes have ended, read. It does not read the keys whose writes
// failed.
func bothWays(
	write func(context.Context, lane, []*item[*keyWrite]), read func(context.Context, lane, []*item[*keyRead]),
) func(context.Context, lane, []*item[*writeRead]) {
	return func(ctx context.Context, l lane, items []*item[*writeRead]) {
		writes := make([]*item[*keyWrite], len(items))
		for i, r := range items {
			writes[i] = &r.request.write
		}
		write(ctx, l, writes)
		reads := make([]*item[*keyRead], 0, len(items))
		for _, r := range items {
			if r.err = r.request.write.err; r.err == nil {
				reads = append(reads, &r.request.read)
			}
		}
		if len(reads) == 0 {
			return
		}
		read(ctx, l.ofRead(), reads)
		for _, r := range items {
			if r.err == nil {
				r.err = unread(r.request.read.err)
			}
		}
	}
}

// ofRead returns the lane of the read that follows a write.
func (l lane) ofRead() lane {
	l.level = l.then
	return l
}

// unread returns err, the error of a read whose write is stored, as an unreadError; nil for nil.
func unread(err error) error {
	if err == nil {
		return nil
	}
	return &unreadError{err}
}
