package store

import (
	"cmp"
	"slices"
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

// Empty reports whether nothing is counted in s.
func (s *State) Empty() bool {
	for i := range s.Logs {
		if len(s.Logs[i].Events) > 0 {
			return false
		}
	}
	return len(s.Counts) == 0 && s.Cell.Version == EventID{}
}

// Holds reports whether s has holds, which others may settle or end.
func (s *State) Holds() bool {
	for i := range s.Logs {
		if slices.ContainsFunc(s.Logs[i].Events, func(e Event) bool { return e.Ends != 0 }) {
			return true
		}
	}
	return false
}

// Cell is one small value of a key that changes by compare-and-set only. The zero
// Cell is one that does not exist.
type Cell struct {
	Version EventID // another one after every change, never used again
	Value   []byte  // not to be changed; within an Update the store's own, until the end of it
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

// Same reports whether other counts the same units as c: for the same limit, in the
// same window and epoch, by the same writer.
func (c Count) Same(other Count) bool {
	return c.Start == other.Start && c.Epoch == other.Epoch && c.Limit == other.Limit && c.Row == other.Row
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

// Conversion is what a limit on conversion remembers: what was sent and confirmed in each block
// of its window.
type Conversion struct {
	Limit  policy.LimitID
	Last   Instant // of the last unit that was sent
	Probe  bool    // it was a probe
	Blocks [policy.ConversionBlocks]ConversionBlock
}

// ConversionBlock is what was sent within one block, and how much of that is confirmed. It lies
// at the number of its block, modulo how many there are.
type ConversionBlock struct {
	Start           Instant
	Sent, Confirmed int64
}

// ConversionOf returns what s has of the limit id; nil for nothing.
func (s *State) ConversionOf(id policy.LimitID) *Conversion {
	for i := range s.Conversions {
		if c := &s.Conversions[i]; c.Limit == id {
			return c
		}
	}
	return nil
}

// MaxApplied is of how many receipts a cell tells that they came back: more changes of one cell than
// there are within a store timeout.
const MaxApplied = 64

// MaxAppliedInMemory is how many receipts of a key an owner remembers. It changes a key in memory more often than a cell can
// be written.
const MaxAppliedInMemory = 1024

// Applied are the receipts that came back last, for a confirmation or a refund that a cell has: so one
// that is sent again finishes what the first began, and does nothing twice.
type Applied struct {
	Last  []Receipt // the newest first
	Since Instant   // of all that were claimed later, those that came back are among Last
}

// Receipt is one entry of a receipt that came back.
type Receipt struct {
	ID EventID
	At Instant // when it did, not before it was claimed
}

// Note notes at now that the receipt of id came back, which was claimed at an instant, and reports whether it
// is the first time, for sure. It keeps the newest receipts, no more than most.
func (a *Applied) Note(id EventID, claimed, now Instant, most int) (first bool) {
	if claimed <= a.Since || slices.ContainsFunc(a.Last, func(r Receipt) bool { return r.ID == id }) {
		return false
	}
	a.Last = slices.Insert(slices.Clip(a.Last), 0, Receipt{ID: id, At: max(claimed, now)})
	for len(a.Last) > most {
		oldest := len(a.Last) - 1
		a.Since = max(a.Since, a.Last[oldest].At)
		a.Last = a.Last[:oldest]
	}
	return true
}

// CountAfter returns how many of l's events are later than bound, without the holds that have ended.
func (l *Log) CountAfter(bound, endedBy Instant) (n int) {
	for i := range l.Events {
		if e := &l.Events[i]; e.At > bound && (e.Ends == 0 || e.Ends > endedBy) {
			n++
		}
	}
	return n
}
