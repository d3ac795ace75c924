package store

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Instant is a point in time: whole milliseconds since the Unix epoch, UTC. The
// zero Instant is the epoch and, where a store reports one, means "never".
//
// Algorithms compute with instants rather than [time.Time] so that nothing is
// ever rounded across a limit.
type Instant int64

// Distant is later than every instant that a decision computes with.
const Distant Instant = math.MaxInt64 / 4

// InstantOf returns the millisecond that t falls into.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time returns i as a UTC time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }

// Add returns the instant d later, d cut to whole milliseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the time from j to i; it saturates at the longest Duration.
func (i Instant) Sub(j Instant) time.Duration {
	ms := int64(i - j)
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms > most {
		return time.Duration(math.MaxInt64)
	}
	if ms < -most {
		return time.Duration(math.MinInt64)
	}
	return time.Duration(ms) * time.Millisecond
}

// Floor returns the latest multiple of window at or before i, counted from the
// Unix epoch; window is at least a millisecond.
func (i Instant) Floor(window time.Duration) Instant {
	w := Instant(window.Milliseconds())
	start := i - i%w
	if i%w < 0 {
		start -= w
	}
	return start
}

// EventID is a version 1 UUID (RFC 9562): its time is the event's instant, its
// node the process that made it. No two are alike, whatever the clock does.
type EventID [16]byte

// uuidEpoch is the Unix epoch in 100 ns ticks since 1582-10-15, where the time of
// a version 1 UUID starts (RFC 9562, section 5.1).
const uuidEpoch = 0x01B21DD213814000

const (
	ticksPerMilli  = 10_000  // of 100 ns
	clockSequences = 1 << 14 // values of a version 1 UUID's clock sequence
)

// String returns the usual text form of the UUID.
func (id EventID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Instant returns the millisecond that the event is dated.
func (id EventID) Instant() Instant {
	ticks := uint64(binary.BigEndian.Uint32(id[0:]))
	ticks |= uint64(binary.BigEndian.Uint16(id[4:])) << 32
	ticks |= uint64(binary.BigEndian.Uint16(id[6:])&0x0fff) << 48
	return Instant((int64(ticks) - uuidEpoch) / ticksPerMilli)
}

// Node returns the 48 bits that tell the process.
func (id EventID) Node() (n [6]byte) { return [6]byte(id[10:]) }

// EventIDs makes the ids of one process. Ids of the same millisecond differ by a
// counter over the millisecond's ticks and the clock sequence, 163,840,000 of
// them before it comes round.
type EventIDs struct {
	node [6]byte
	made atomic.Uint64
}

// NewEventIDs draws 47 random node bits; the 48th is the multicast bit, which no
// network card has (RFC 9562, section 6.10).
func NewEventIDs() *EventIDs {
	ids := new(EventIDs)
	_, _ = rand.Read(ids.node[:]) // never fails: crypto/rand ends the process instead
	ids.node[0] |= 1
	return ids
}

// Made reports whether id is one of these.
func (ids *EventIDs) Made(id EventID) bool { return id.Node() == ids.node }

// Next returns a new id that is dated at.
func (ids *EventIDs) Next(at Instant) (id EventID) {
	n := ids.made.Add(1)
	ticks := uint64(int64(at)*ticksPerMilli+uuidEpoch) + n%ticksPerMilli
	sequence := n / ticksPerMilli % clockSequences
	binary.BigEndian.PutUint32(id[0:], uint32(ticks))
	binary.BigEndian.PutUint16(id[4:], uint16(ticks>>32))
	binary.BigEndian.PutUint16(id[6:], uint16(ticks>>48)&0x0fff|0x1000)
	binary.BigEndian.PutUint16(id[8:], uint16(sequence)|0x8000)
	copy(id[10:], ids.node[:])
	return id
}
