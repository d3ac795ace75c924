package store

import (
	"cmp"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// State is the stored state of one key, as far as a query asked for it.
type State struct {
	Logs   []Log   // one for each LogQuery, in its order
	Counts []Count // in no order
	Reset  Instant // events at or before it, and counts of an earlier epoch, no longer count
	Cell   Cell

	Buckets     []Bucket     // a policy's leaky and token buckets, decoded from the cell
	Conversions []Conversion // the conversions of a policy, decoded from the cell
	Applied     Applied      // the receipts that were returned, decoded from the cell
}

// Empty reports whether s has no events, counts or cell.
func (s *State) Empty() bool {
	for i := range s.Logs {
		if len(s.Logs[i].Events) > 0 {
			return false
		}
	}
	return len(s.Counts) == 0 && s.Cell.Version == EventID{}
}

// ReplaceEvent replaces the event with e's ID by e in every log of s, and reports whether each had it.
func (s *State) ReplaceEvent(e Event) (had bool) {
	had = true
	for i := range s.Logs {
		events := s.Logs[i].Events
		at := len(events) - 1
		for at >= 0 && events[at].ID != e.ID {
			at--
		}
		if at < 0 {
			had = false
			continue
		}
		events[at] = e
	}
	return had
}

// Cell is one small value of a key that changes by compare-and-set only. The zero Cell means that there is none.
type Cell struct {
	Version EventID // new after every change, never used again
	Value   []byte  // read-only; within an Update it is the store's memory, and valid until the Update ends
}

// Count is the count of one window of one limit.
type Count struct {
	Limit   policy.LimitID
	Start   Instant // start of the window
	Expires Instant // when no decision needs it any more
	Epoch   Instant // the reset after which it was counted; 0: none
	Units   int64   // can be negative while additions and refunds arrive out of order
	Row     EventID // the writer whose running total it is; zero: a counter to which all writers add
}

// Same reports whether c and other have the same limit, window, epoch and writer.
func (c Count) Same(other Count) bool {
	return c.Start == other.Start && c.Epoch == other.Epoch && c.Limit == other.Limit && c.Row == other.Row
}

// Tally is the running total of one writer for one window. It replaces the writer's earlier total. Writing it again changes
// nothing, and an earlier total that arrives late changes nothing either.
type Tally struct {
	Count               // Row is not zero
	Stamp int64         // microseconds since the Unix epoch; of two totals for one row, the one with the later Stamp stays
	TTL   time.Duration // how long it is kept, in whole seconds
}

// UnitsAt returns the units in the window of limit id that starts at start.
func (s *State) UnitsAt(id policy.LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start == start && c.Epoch >= s.Reset && c.Limit == id {
			units = AddSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// farthest is the year 3084, later than any real window. Later windows in a store are damaged data, and are ignored because
// calendars and waits can't handle them.
const farthest Instant = 1 << 45

// counts reports whether c belongs to a window of limit id that starts at or after start, and has not been reset.
func (s *State) counts(c *Count, id policy.LimitID, start Instant) bool {
	return c.Start >= start && c.Start < farthest && c.Epoch >= s.Reset && c.Limit == id
}

// UnitsFrom returns the units in the windows of limit id that start at or after start.
func (s *State) UnitsFrom(id policy.LimitID, start Instant) int64 {
	units := int64(0)
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			units = AddSaturating(units, c.Units)
		}
	}
	return max(0, units)
}

// WindowUnits has units of one window. A list may have several for the same window.
type WindowUnits struct {
	Start Instant
	Units int64
}

// AppendFrom appends to units, in no order, the units in the windows of limit id that start at or after start.
func (s *State) AppendFrom(units []WindowUnits, id policy.LimitID, start Instant) []WindowUnits {
	for i := range s.Counts {
		if c := &s.Counts[i]; s.counts(c, id, start) {
			units = append(units, WindowUnits{c.Start, c.Units})
		}
	}
	return units
}

// FirstFrom returns the start of the first window of limit id that starts at or after start and has units, Distant if there
// is none.
func (s *State) FirstFrom(id policy.LimitID, start Instant) Instant {
	first := Distant
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start >= start && c.Start < first && c.Epoch >= s.Reset && c.Limit == id && c.Units > 0 {
			first = c.Start
		}
	}
	return first
}

// Counted returns a copy of the counters in s.
func (s *State) Counted() State { return State{Counts: slices.Clone(s.Counts), Reset: s.Reset} }

// Add adds c to the same count in s, as a store does.
func (s *State) Add(c Count) {
	for i := range s.Counts {
		if have := &s.Counts[i]; have.Same(c) {
			have.Units += c.Units
			return
		}
	}
	s.Counts = append(s.Counts, c)
}

// Replace replaces the same count in s by total, and reports whether s had that count.
func (s *State) Replace(total Count) (seen bool) {
	i := slices.IndexFunc(s.Counts, total.Same)
	if i < 0 {
		s.Counts = append(s.Counts, total)
		return false
	}
	s.Counts[i].Units = total.Units
	return true
}

// Merge adds to s the state of another key of the same target. It does not merge cells, as a compare-and-set spans only one
// key.
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

// Conversion is the state of a limit on conversion: the units sent and confirmed in each block of its window.
type Conversion struct {
	Limit  policy.LimitID
	Last   Instant // when the last unit was sent
	Probe  bool    // whether the last unit was a probe
	Blocks [policy.ConversionBlocks]ConversionBlock
}

// ConversionBlock has the number of units sent within one block, and how many of these are confirmed. Its index in Blocks
// is the block's number modulo the number of blocks.
type ConversionBlock struct {
	Start           Instant
	Sent, Confirmed int64
}

// ConversionOf returns the conversion of limit id in s, nil if it has none.
func (s *State) ConversionOf(id policy.LimitID) *Conversion {
	for i := range s.Conversions {
		if c := &s.Conversions[i]; c.Limit == id {
			return c
		}
	}
	return nil
}

// MaxApplied is the number of returned receipts that a cell keeps. A cell changes fewer times within a store timeout.
const MaxApplied = 64

// MaxAppliedInMemory is the number of returned receipts that an owner keeps for a key. It is larger, because an owner changes
// a key in memory more often than a cell can be written.
const MaxAppliedInMemory = 1024

// Applied has the receipts that were returned last, whose confirmations and refunds the cell includes. So a receipt that is
// sent again completes the first attempt, and has no effect twice.
type Applied struct {
	Last  []Receipt // the newest first
	Since Instant   // all returned receipts that were claimed later are in Last
}

// Receipt is one entry of a returned receipt.
type Receipt struct {
	ID EventID
	At Instant // when it was returned; not before it was claimed
}

// Note records at now that the receipt of id, which was claimed at the instant claimed, was returned. It reports whether
// this is certainly the first time. It keeps at most as many receipts as most says, the newest ones.
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

// CountAfter returns how many of l's events are later than bound, without the holds that have ended by endedBy.
func (l *Log) CountAfter(bound, endedBy Instant) (n int) {
	for i := range l.Events {
		if e := &l.Events[i]; e.At > bound && (e.Ends == 0 || e.Ends > endedBy) {
			n++
		}
	}
	return n
}
