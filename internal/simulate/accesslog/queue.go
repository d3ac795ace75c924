package accesslog

import (
	"bytes"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// queue sorts records that are nearly in order: the first one leaves once another one is later by more than within. The
// zero queue does not sort.
type queue struct {
	within  time.Duration
	waiting []*Record // in the order of time
	latest  store.Instant
}

// maxQueued is the maximum of waiting records. Beyond it, the first one leaves at once.
const maxQueued = 1 << 18

// ripe reports whether the first record can leave.
func (q *queue) ripe() bool {
	return len(q.waiting) > 0 && (q.latest.Sub(q.waiting[0].At) > q.within || q.within == 0 || len(q.waiting) >= maxQueued)
}

// push adds a copy of r after all that are not later.
func (q *queue) push(r *Record) {
	q.latest = max(q.latest, r.At)
	at := len(q.waiting)
	for at > 0 && q.waiting[at-1].At > r.At {
		at--
	}
	q.waiting = slices.Insert(q.waiting, at, r.clone())
}

// pop removes the first record and returns it, nil if there is none.
func (q *queue) pop() *Record {
	if len(q.waiting) == 0 {
		return nil
	}
	first := q.waiting[0]
	q.waiting[0] = nil
	q.waiting = q.waiting[1:]
	return first
}

// clone returns a copy of r with memory of its own.
func (r *Record) clone() *Record {
	c := &Record{At: r.At, Fields: make([][]byte, len(r.Fields))}
	text := bytes.Join(r.Fields, nil)
	for i, field := range r.Fields {
		c.Fields[i], text = text[:len(field)], text[len(field):]
	}
	return c
}
