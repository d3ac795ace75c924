package accesslog

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// queue sorts records that are nearly in order: the first one leaves once another one is later by more than within. The
// zero queue does not sort.
type queue struct {
	within time.Duration
	kept   []kept // a ring
	first  int
	length int
	latest store.Instant
	popped kept
}

// kept is a record in memory of its own, which is reused.
type kept struct {
	Record
	memory []byte
}

// maxQueued is the maximum of waiting records. Beyond it, the first one leaves at once.
const maxQueued = 1 << 18

// ripe reports whether the first record can leave.
func (q *queue) ripe() bool {
	return q.length > 0 && (q.latest.Sub(q.at(0).At) > q.within || q.within == 0 || q.length >= maxQueued)
}

func (q *queue) at(i int) *kept { return &q.kept[(q.first+i)&(len(q.kept)-1)] }

// push adds a copy of r after all that are not later.
func (q *queue) push(r *Record) {
	if q.length == len(q.kept) {
		q.grow()
	}
	q.length++
	q.at(q.length - 1).set(r)
	q.latest = max(q.latest, r.At)
	for i := q.length - 1; i > 0 && q.at(i-1).At > q.at(i).At; i-- {
		*q.at(i - 1), *q.at(i) = *q.at(i), *q.at(i - 1)
	}
}

// minQueue is the initial capacity, which doubles as needed.
const minQueue = 64

func (q *queue) grow() {
	larger := make([]kept, max(minQueue, 2*len(q.kept)))
	for i := range q.length {
		larger[i] = *q.at(i)
	}
	q.kept, q.first = larger, 0
}

// pop removes the first record and returns it, nil if there is none. It is valid until the next pop.
func (q *queue) pop() *Record {
	if q.length == 0 {
		return nil
	}
	q.popped, *q.at(0) = *q.at(0), q.popped
	q.first = (q.first + 1) & (len(q.kept) - 1)
	q.length--
	return &q.popped.Record
}

// set makes k a copy of r.
func (k *kept) set(r *Record) {
	k.At, k.memory = r.At, k.memory[:0]
	for _, field := range r.Fields {
		k.memory = append(k.memory, field...)
	}
	k.Fields = k.Fields[:0]
	start := 0
	for _, field := range r.Fields {
		k.Fields = append(k.Fields, k.memory[start:start+len(field)])
		start += len(field)
	}
}
