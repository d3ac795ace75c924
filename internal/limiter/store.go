package limiter

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Store is the memory that limits are counted in, shared by every instance that
// counts together. It is safe for concurrent use.
//
// A store whose levels meet promises: a Read that starts after a Write of the
// same key returned nil sees that Write. Errors wrap ErrUnavailable or
// ErrOverloaded; after one, a Write may be stored whole, in part or not at all,
// unless the error wraps ErrNotStored.
type Store interface {
	// Read returns what q asks for. The state is the caller's.
	Read(ctx context.Context, q *Query) (State, error)
	// Write stores w.
	Write(ctx context.Context, w *Write) error
	// WriteAll stores events of several keys so that all are stored in the end or
	// none, should this process die meanwhile or a node not answer. Nothing but
	// appended events is in w.
	WriteAll(ctx context.Context, w []Write) error
}

// EachWriter is a Store that writes to many keys for less than it takes one by one.
type EachWriter interface {
	Store
	// WriteEach stores each of w as Write does, whatever becomes of the others. It calls
	// wrote with the index and the error of each, from several goroutines at the same time,
	// and returns when it has for all of them.
	WriteEach(ctx context.Context, w []Write, wrote func(i int, err error))
}

// WriteEach has store, which may be an EachWriter, store each of w; see there.
func WriteEach(ctx context.Context, store Store, w []Write, wrote func(i int, err error)) {
	if each, ok := store.(EachWriter); ok {
		each.WriteEach(ctx, w, wrote)
		return
	}
	var all sync.WaitGroup
	for i := range w {
		all.Go(func() { wrote(i, store.Write(ctx, &w[i])) })
	}
	all.Wait()
}

// WriteReader is a Store that writes to a key and then reads it for less than it takes in two
// calls.
type WriteReader interface {
	Store
	// WriteThenRead stores w as Write does and, once that has returned nil, reads what q asks
	// for of the same key as Read does. wrote reports whether it came to that: err is Read's
	// then, and Write's else.
	WriteThenRead(ctx context.Context, w *Write, q *Query) (state State, wrote bool, err error)
}

// WriteThenRead has store, which may be a WriteReader, store w and then read what q asks for;
// see there.
func WriteThenRead(ctx context.Context, store Store, w *Write, q *Query) (state State, wrote bool, err error) {
	if both, ok := store.(WriteReader); ok {
		return both.WriteThenRead(ctx, w, q)
	}
	if err := store.Write(ctx, w); err != nil {
		return State{}, false, err
	}
	state, err = store.Read(ctx, q)
	return state, true, err
}

// Exclusive is a Store that can hold keys still while a decision is made over
// them. The engine prefers it: nobody is ever denied for units that are about to be
// taken back. One engine alone changes what is kept of its keys, and goes by that.
type Exclusive interface {
	Store
	// Update reads what q asks for, calls decide with it, and stores what decide put
	// into w, with nobody reading or writing the key in between. decide must not block
	// and keeps neither s nor w; the store keeps no memory that w names.
	Update(ctx context.Context, q *Query, decide func(s *State, w *Write)) error
	// UpdateAll is Update for several keys, in their order, of which none is in q twice:
	// all that decide put into w is stored, or nothing.
	UpdateAll(ctx context.Context, q []Query, decide func(s []State, w []Write)) error
}

// Feed carries news between instances. A store may be one.
type Feed interface {
	// Publish makes c known to every instance for as long as c lives.
	Publish(ctx context.Context, c *Change) error
	// Changes returns what q asks for of all that was published and still lives, in no
	// order. It may return more, and the same change more than once.
	Changes(ctx context.Context, q *ChangeQuery) ([]Change, error)
}

// ChangeQuery asks for the changes that were published since an instant, and are dated before
// another.
type ChangeQuery struct {
	Since Instant
	Until Instant // zero: Distant
	Level Level   // of the read; empty: the feed's own
}

// Change is news of one key that every instance acts on.
type Change struct {
	ID      EventID // dated when it was made
	Kind    ChangeKind
	Key     Key
	Until   Instant       // the end of a block
	Strikes int           // blocks of the key in a row, this one included
	Details string        // what else there is to know, by the kind; at most MaxChangeDetails bytes
	TTL     time.Duration // for how long it is kept; whole seconds
	Level   Level         // that it is published at; empty: the feed's own
}

// ChangeKind says what a Change is about. Kinds that an instance does not know are
// of a later version and are passed over.
type ChangeKind string

// The kinds of changes.
const (
	ChangeReset  ChangeKind = "reset"  // what was counted is forgotten, blocks too
	ChangeRefund ChangeKind = "refund" // some of what was counted was given back
	ChangeBlock  ChangeKind = "block"  // nothing is admitted before Until

	ChangeHold     ChangeKind = "hold"     // a reservation is to be ended at Until by whoever comes after the process that made it
	ChangeOverride ChangeKind = "override" // the key is decided otherwise until Until, or no longer is: the latest one stands
)

// MaxChangeDetails bounds Change.Details in bytes: 16 limits of an override, with names as
// long as they may be, come to half of it.
const MaxChangeDetails = 4 << 10

// Span is the class of a log's window. A store may keep the classes apart so that
// rows of like age lie together; the events of a key under different spans are
// different logs.
type Span int

// The spans, by the longest window that belongs to each.
const (
	SpanHour  Span = iota // up to 1 hour
	SpanDay               // up to 1 day
	SpanMonth             // up to MaxWindow
	SpanCount             // how many spans there are
)

// SpanOf returns the span that a log of this window belongs to.
func SpanOf(window time.Duration) Span {
	switch {
	case window <= time.Hour:
		return SpanHour
	case window <= 24*time.Hour:
		return SpanDay
	}
	return SpanMonth
}

// Query asks for the state of one key. Memory that it does not name is neither
// read nor returned.
type Query struct {
	Key    Key
	Level  Level
	Logs   []LogQuery
	Counts bool // all counters of the key that expire after ExpireAfter
	Tally  bool // all running totals of the key in Span that expire after ExpireAfter
	Span   Span
	Cell   bool // the key's cell; Logs are then those beside it, of which there is one

	ExpireAfter Instant
}

// LogQuery asks for the newest Max events of one span that are later than After,
// with no bound on how late. Holds come on top of those: one that has ended may be
// there for a while, and must not hide an event that counts.
type LogQuery struct {
	Span  Span
	After Instant
	Max   int
}

// State is what a store remembers of one key, as far as a query asked.
type State struct {
	Logs   []Log   // one for each LogQuery, in its order
	Counts []Count // in no order
	Reset  Instant // events at or before it, and counts of an earlier epoch, are forgotten
	Cell   Cell

	levels []bucket // what the buckets of a plan hold, as its cell says
}

// Cell is one small value of a key that changes by compare-and-set only. The zero
// Cell is one that does not exist.
type Cell struct {
	Version EventID // another one after every change, never used again
	Value   []byte  // not to be changed; within an Update the store's own, until the end of it
}

// Log is the newest part of one span's events. In an Update they are the store's
// own: decide may append to them, but changes nothing in them.
type Log struct {
	Events []Event // oldest first
	Sum    int64   // of their costs, where an Update's store knows it and none is a hold; 0: they are to be added up
}

// From returns what is left of l without its first n events.
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

// SumOf returns the sum of the costs of events, the largest int64 if it is more.
func SumOf(events []Event) int64 {
	sum := int64(0)
	for i := range events {
		sum = addSaturating(sum, events[i].Cost)
	}
	return sum
}

// insert adds event in order of time. It never changes what is in Events already.
func (l *Log) insert(event Event) {
	if l.Sum > 0 {
		l.Sum = addSaturating(l.Sum, event.Cost)
	}
	l.Events = insertEvent(l.Events, event)
}

// Event is one recorded request. Whoever appends it again with the same ID replaces
// it by the same, unless it was removed: then it stays removed.
type Event struct {
	ID   EventID
	At   Instant
	Cost int64   // units, at least 1
	Ends Instant // a hold counts until then, unless it is settled; 0: no hold
}

// Count is what one window of one limit holds.
type Count struct {
	Limit   LimitID
	Start   Instant // of the window
	Expires Instant // nobody asks for it any more from here on
	Epoch   Instant // the reset that it was counted under; 0: none
	Units   int64   // can be negative while what was added and taken back settles
	Row     EventID // of the writer whose running total it is; zero: a counter, which all writers add to
}

// Tally is the running total of one writer for one window, which replaces the one that
// the writer stored before. Repeating it changes nothing, nor does an earlier one that
// comes late.
type Tally struct {
	Count               // Row is not zero
	Stamp int64         // microseconds since the Unix epoch; of two of one row the later stands
	TTL   time.Duration // for how long it is kept; whole seconds
}

// Write changes the state of one key. Events and counters may be given together;
// a store need not apply them as one.
type Write struct {
	Key   Key
	Level Level

	Events []Event    // appended to every log of Logs
	Remove []EventID  // removed from every log of Logs; safe to repeat
	Logs   []LogWrite // the logs that Events and Remove speak of
	Settle bool       // Events were held and stay from now on: the later word on each, whenever it arrives
	Add    []Count    // Units added to the counters, below 0 to take back; repeating counts twice
	Put    []Tally    // running totals of the key in Span; safe to repeat
	Tally  bool       // the key's counts are running totals: those that a reset must reach; a store finds no Add then
	Span   Span       // of the running totals
	Cell   *CellWrite // Events and Remove then speak of the log beside the cell and are part of the condition

	// Present, within an Update, is the instant that events which are dated later are dated from
	// now on, before anything else is stored: the clock was set back. A reset and epochs are dated a
	// millisecond before it, and counters that come to nothing are forgotten. 0: nothing is.
	Present Instant

	Reset    Instant       // 0: none; the state's Reset becomes it, unless that is later
	ResetTTL time.Duration // for how long a reset is remembered; whole seconds
	Counts   bool          // the key has counters, which a reset must reach
}

// CellWrite replaces a cell, or removes it if Version is zero, on the condition that
// it has not changed since it was read; within an Update nothing can have. Where it
// has, the Write fails with an error that wraps ErrConflict, and stores nothing. After
// any other error it may be stored, now or later, as long as the condition holds.
type CellWrite struct {
	If      EventID // the version that the cell must have; zero: it must not exist
	Version EventID // that it has then
	Value   []byte
	TTL     time.Duration // for how long it is kept; whole seconds; 0: for ever
	Serial  Level         // LevelSerial or LevelLocalSerial
}

// LogWrite names one log of a key.
type LogWrite struct {
	Span Span
	TTL  time.Duration // of the appended events; whole seconds
	Keep int           // how many of the newest events an Update needs; a store in memory may merge older ones
}

// unitsAt returns what the window of limit id that starts at start holds.
func (s *State) unitsAt(id LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start == start && c.Epoch >= s.Reset && c.Limit == id {
			units = addSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// farthest is later than any window that was ever counted in: the year 3084. What a store
// says of later ones is damage, and calendars and waits are not made for it.
const farthest Instant = 1 << 45

// counts reports whether c is of a window of limit id that starts at or after start, and was
// not reset.
func (s *State) counts(c *Count, id LimitID, start Instant) bool {
	return c.Start >= start && c.Start < farthest && c.Epoch >= s.Reset && c.Limit == id
}

// unitsFrom returns what the windows of limit id that start at or after start hold.
func (s *State) unitsFrom(id LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			units = addSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// windowUnits is units of one window; there may be more for the same one.
type windowUnits struct {
	start Instant
	units int64
}

// appendFrom appends to held, in no order, what the windows of limit id that start at or
// after start hold.
func (s *State) appendFrom(held []windowUnits, id LimitID, start Instant) []windowUnits {
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			held = append(held, windowUnits{c.Start, c.Units})
		}
	}
	return held
}

// firstFrom returns the start of the first window of limit id at or after start
// that holds anything, Distant when none does.
func (s *State) firstFrom(id LimitID, start Instant) Instant {
	first := Distant
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start >= start && c.Start < first && c.Epoch >= s.Reset && c.Limit == id && c.Units > 0 {
			first = c.Start
		}
	}
	return first
}

// counted returns a copy of what counters say in s.
func (s *State) counted() State { return State{Counts: slices.Clone(s.Counts), Reset: s.Reset} }

// add counts c in s as a store would.
func (s *State) add(c Count) {
	for i := range s.Counts {
		if have := &s.Counts[i]; have.same(c) {
			have.Units += c.Units
			return
		}
	}
	s.Counts = append(s.Counts, c)
}
