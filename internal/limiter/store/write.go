package store

import (
	"errors"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Write changes the state of one key. Events and counters may be given together;
// a store need not apply them as one.
type Write struct {
	Key   Key
	Level policy.Level

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
	Serial  policy.Level  // policy.LevelSerial or policy.LevelLocalSerial

	Claim bool   // it says that something happened once, under a name that callers may choose: a bounded store bounds these apart
	Owner uint64 // of a Claim: a hash of whose it is, so that nobody takes all the room; 0: it is nobody's
}

// LogWrite names one log of a key.
type LogWrite struct {
	Span Span
	TTL  time.Duration // of the appended events; whole seconds
	Keep int           // how many of the newest events an Update needs; a store in memory may merge older ones
}

// Again returns w as it is to be repeated after err: what has changed the totals already
// does not do so twice.
func (w *Write) Again(err error) *Write {
	if len(w.Add) == 0 || errors.Is(err, ErrNotStored) {
		return w
	}
	repeated := *w
	repeated.Add = Emptied(w.Add)
	return &repeated
}

// Emptied returns counts without their units.
func Emptied(counts []Count) []Count {
	same := slices.Clone(counts)
	for i := range same {
		same[i].Units = 0
	}
	return same
}
