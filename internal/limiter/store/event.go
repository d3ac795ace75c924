package store

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync/atomic"
	"time"
)

// Key is the hash of namespace, policy and identifier under which counts are stored. It is made by a Keyer or read back
// from a store, so code that takes a Key never sees an identifier. The zero Key belongs to no identifier.
type Key struct{ Sum [KeySize]byte }

// KeySize is the length of a key in bytes.
const KeySize = sha256.Size

// Bytes returns the key's hash. The caller may keep and change it.
func (k Key) Bytes() []byte { return append([]byte(nil), k.Sum[:]...) }

// KeyFrom returns the key with these bytes, for stores that read keys back. It hashes nothing: sum must not hold an
// identifier.
func KeyFrom(sum [KeySize]byte) Key { return Key{Sum: sum} }

// Prefix returns the first eight bytes as a number. Keys are spread evenly over all numbers, so stores choose shards by it.
func (k Key) Prefix() uint64 { return binary.BigEndian.Uint64(k.Sum[:8]) }

// Rest returns the sixteen bytes after the Prefix as two numbers, which tell keys with the same Prefix apart.
func (k Key) Rest() (a, b uint64) {
	return binary.BigEndian.Uint64(k.Sum[8:16]), binary.BigEndian.Uint64(k.Sum[16:24])
}

// Compare returns −1, 0 or +1 if k is less than, equal to or greater than other, by their bytes.
func (k Key) Compare(other Key) int { return bytes.Compare(k.Sum[:], other.Sum[:]) }

// AppendTo returns b with the key's bytes appended.
func (k Key) AppendTo(b []byte) []byte { return append(b, k.Sum[:]...) }

// String returns the start of the hash, which is long enough to tell keys apart in a failed test, and too short to look one
// up.
func (k Key) String() string { return hex.EncodeToString(k.Sum[:4]) + "…" }

// Instant is a point in time in whole milliseconds since the Unix epoch, UTC. The zero Instant is the epoch. If a store
// reports it, it means "never".
//
// Algorithms compute with instants instead of [time.Time], so that no time is ever rounded across a limit.
type Instant int64

// Distant is later than every instant with which a decision computes.
const Distant Instant = math.MaxInt64 / 4

// InstantOf returns the millisecond that contains t.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time returns i as a UTC time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }

// Add returns the instant d later. It truncates d to whole milliseconds.
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

// EventID is a version 1 UUID (RFC 9562). Its time is the event's instant, and its node is the process that made it. No two
// are equal, even if the clock is set back.
type EventID [16]byte

// uuidEpoch is the Unix epoch in 100 ns ticks since 1582-10-15, where the time of
// a version 1 UUID starts (RFC 9562, section 5.1).
const uuidEpoch = 0x01B21DD213814000

const (
	multicast      = 1       // a bit of a node's first byte
	ticksPerMilli  = 10_000  // of 100 ns
	clockSequences = 1 << 14 // values of a version 1 UUID's clock sequence
)

// String returns the usual text form of the UUID.
func (id EventID) String() string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}

// Part returns the id, with the same instant, under which a part of the event's units is given back. No event has this id:
// its node lacks the multicast bit, which the nodes of all processes have.
func (id EventID) Part() EventID {
	id[10] &^= multicast
	return id
}

// Instant returns the millisecond of the event.
func (id EventID) Instant() Instant {
	ticks := uint64(binary.BigEndian.Uint32(id[0:]))
	ticks |= uint64(binary.BigEndian.Uint16(id[4:])) << 32
	ticks |= uint64(binary.BigEndian.Uint16(id[6:])&0x0fff) << 48
	return Instant((int64(ticks) - uuidEpoch) / ticksPerMilli)
}

// Node returns the 48 bits that identify the process.
func (id EventID) Node() (n [6]byte) { return [6]byte(id[10:]) }

// IsAfter reports whether the event of id comes after that of other: by their instants or, if these are equal, by their
// bytes. All instances agree on the order of two ids.
func (id EventID) IsAfter(other EventID) bool {
	return cmp.Or(cmp.Compare(id.Instant(), other.Instant()), bytes.Compare(id[:], other[:])) > 0
}

// EventIDs makes the ids of one process. Ids of the same millisecond differ by a counter in the millisecond's ticks and the
// clock sequence, which repeats after 163,840,000 ids.
type EventIDs struct {
	node [6]byte
	made atomic.Uint64
}

// NewEventIDs draws 47 random node bits; the 48th is the multicast bit, which no
// network card has (RFC 9562, section 6.10).
func NewEventIDs() *EventIDs {
	ids := new(EventIDs)
	_, _ = rand.Read(ids.node[:]) // never fails: crypto/rand ends the process instead
	ids.node[0] |= multicast
	return ids
}

// Made reports whether id was made by ids.
func (ids *EventIDs) Made(id EventID) bool { return id.Node() == ids.node }

// Next returns a new id of the instant at.
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

// Event is one recorded request. Appending it again with the same ID changes nothing, even if it has been removed.
type Event struct {
	ID   EventID
	At   Instant
	Cost int64   // units, at least 1
	Ends Instant // when a hold stops counting unless it is settled; 0: it is not a hold
}

// Redate gives e the time now if its own time is later. A hold keeps its length.
func (e *Event) Redate(now Instant) {
	if e.At <= now {
		return
	}
	if e.Ends != 0 {
		e.Ends -= e.At - now
	}
	e.At = now
}

// Log is the newest part of a key's events of one span. During an Update, Events is the store's memory: decide may append to
// it, but must not change its elements.
type Log struct {
	Events []Event // oldest first
	Sum    int64   // sum of their costs, if an Update's store knows it and no event is a hold; 0: not known
}

// From returns l without its first n events.
func (l *Log) From(n int) Log {
	rest := Log{Events: l.Events[n:]}
	switch {
	case l.Sum == 0:
	case n > len(rest.Events):
		rest.Sum = SumOf(rest.Events)
	default:
		rest.Sum = l.Sum - SumOf(l.Events[:n])
	}
	return rest
}

// After returns the events of l that are later than bound.
func (l *Log) After(bound Instant) Log {
	if len(l.Events) == 0 || l.Events[0].At > bound { // the usual case
		return *l
	}
	return l.From(sort.Search(len(l.Events), func(i int) bool { return l.Events[i].At > bound }))
}

// Grow makes room for n more events if append would allocate room for more than most events in all.
func (l *Log) Grow(n, most int) {
	const doubles = 256 // append doubles capacity up to this length, and adds a quarter beyond
	if have := len(l.Events); have+n > cap(l.Events) && have < doubles && have+n <= most && most < 2*have {
		l.Events = append(make([]Event, 0, most), l.Events...)
	}
}

// Insert adds event in order of time. It never changes the elements of Events, which may be the store's memory.
func (l *Log) Insert(event Event) {
	if l.Sum > 0 {
		l.Sum = AddSaturating(l.Sum, event.Cost)
	}
	n := len(l.Events)
	if n == 0 || l.Events[n-1].At <= event.At {
		l.Events = append(l.Events, event)
		return
	}
	i, _ := slices.BinarySearchFunc(l.Events, event.At+1, func(e Event, at Instant) int { return int(e.At - at) })
	l.Events = slices.Insert(slices.Clip(l.Events), i, event)
}

// Redate gives all later events the time now. It changes a copy, as Events may be the store's memory.
func (l *Log) Redate(now Instant) {
	n := len(l.After(now).Events)
	if n == 0 {
		return
	}
	l.Events = slices.Clone(l.Events)
	for i := len(l.Events) - n; i < len(l.Events); i++ {
		l.Events[i].Redate(now)
	}
}

// SumOf returns the sum of the costs of events, or the nearest int64 if that does not fit.
func SumOf(events []Event) int64 {
	sum := int64(0)
	for i := range events {
		sum = AddSaturating(sum, events[i].Cost)
	}
	return sum
}

// AddSaturating returns a + b, or the nearest int64 if that does not fit.
func AddSaturating(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
