package store

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// State is what a store remembers of one key, as far as a query asked.
type State struct {
	Logs   []Log   // one for each LogQuery, in its order
	Counts []Count // in no order
	Reset  Instant // events at or before it, and counts of an earlier epoch, are forgotten
	Cell   Cell

	Levels      []Bucket     // what the buckets of a plan hold, as its cell says
	Conversions []Conversion // and what its conversions have
	Applied     Applied      // and which receipts came back
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
		sum = AddSaturating(sum, events[i].Cost)
	}
	return sum
}

// Insert adds event in order of time. It never changes what is in Events already: they may be the store's own.
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
	Limit   policy.LimitID
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

// UnitsAt returns what the window of limit id that starts at start holds.
func (s *State) UnitsAt(id policy.LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start == start && c.Epoch >= s.Reset && c.Limit == id {
			units = AddSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// farthest is later than any window that was ever counted in: the year 3084. What a store
// says of later ones is damage, and calendars and waits are not made for it.
const farthest Instant = 1 << 45

// counts reports whether c is of a window of limit id that starts at or after start, and was
// not reset.
func (s *State) counts(c *Count, id policy.LimitID, start Instant) bool {
	return c.Start >= start && c.Start < farthest && c.Epoch >= s.Reset && c.Limit == id
}

// UnitsFrom returns what the windows of limit id that start at or after start hold.
func (s *State) UnitsFrom(id policy.LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			units = AddSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// WindowUnits is units of one window; there may be more for the same one.
type WindowUnits struct {
	Start Instant
	Units int64
}

// AppendFrom appends to held, in no order, what the windows of limit id that start at or
// after start hold.
func (s *State) AppendFrom(held []WindowUnits, id policy.LimitID, start Instant) []WindowUnits {
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			held = append(held, WindowUnits{c.Start, c.Units})
		}
	}
	return held
}

// FirstFrom returns the start of the first window of limit id at or after start
// that holds anything, Distant when none does.
func (s *State) FirstFrom(id policy.LimitID, start Instant) Instant {
	first := Distant
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start >= start && c.Start < first && c.Epoch >= s.Reset && c.Limit == id && c.Units > 0 {
			first = c.Start
		}
	}
	return first
}

// Counted returns a copy of what counters say in s.
func (s *State) Counted() State { return State{Counts: slices.Clone(s.Counts), Reset: s.Reset} }

// Add counts c in s as a store would.
func (s *State) Add(c Count) {
	for i := range s.Counts {
		if have := &s.Counts[i]; have.Same(c) {
			have.Units += c.Units
			return
		}
	}
	s.Counts = append(s.Counts, c)
}

// Replace puts total in the place of what was read of it, and reports whether that was
// anything.
func (s *State) Replace(total Count) (seen bool) {
	i := slices.IndexFunc(s.Counts, total.Same)
	if i < 0 {
		s.Counts = append(s.Counts, total)
		return false
	}
	s.Counts[i].Units = total.Units
	return true
}

// Merge adds to s what was read under another key of the same target. Cells are
// not merged: a condition spans one key.
func (s *State) Merge(other *State) {
	s.Reset = max(s.Reset, other.Reset)
	for i := range s.Logs {
		if len(other.Logs[i].Events) == 0 {
			continue
		}
		events := slices.Concat(s.Logs[i].Events, other.Logs[i].Events)
		slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
		s.Logs[i] = Log{Events: events}
	}
	for _, c := range other.Counts {
		s.Add(c)
	}
}

// After returns what of l is later than bound.
func (l *Log) After(bound Instant) Log {
	if len(l.Events) == 0 || l.Events[0].At > bound { // most often all of it is
		return *l
	}
	return l.From(sort.Search(len(l.Events), func(i int) bool { return l.Events[i].At > bound }))
}

// Same reports whether other counts the same units as c: for the same limit, in the
// same window and epoch, by the same writer.
func (c Count) Same(other Count) bool {
	return c.Start == other.Start && c.Epoch == other.Epoch && c.Limit == other.Limit && c.Row == other.Row
}

// Empty reports whether nothing is counted in s.
func (s *State) Empty() bool {
	for i := range s.Logs {
		if len(s.Logs[i].Events) > 0 {
			return false
		}
	}
	return len(s.Counts) == 0 && s.Cell.Version == EventID{}
}

// AddSaturating returns a + b, or the nearest int64 where that does not fit.
func AddSaturating(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
