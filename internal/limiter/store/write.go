package store

import (
	"errors"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Write changes the state of one key. Events and counters may be given together; a store need not apply them
// atomically.
type Write struct {
	Key   Key
	Level policy.Level

	Events []Event    // appended to every log of Logs
	Remove []EventID  // removed from every log of Logs; safe to repeat
	Logs   []LogWrite // the logs of Events and Remove
	Settle bool       // Events were held and are permanent from now on; they stay so if the hold arrives after this
	Add    []Count    // units added to the counters, negative to remove; units of a repeated write count twice
	Put    []Tally    // running totals of the key in Span; safe to repeat
	Tally  bool       // the key's counts are running totals, which a reset must cover; Add is then empty
	Span   Span       // of the running totals
	Cell   *CellWrite // outside of an Update, such a write has no other changes

	// Present is set, within an Update, after the clock was set back. Before anything else is stored, events with a later time
	// then get the time Present, later resets and epochs get a time one millisecond before it, and counters that become 0
	// are dropped. 0: no time changes.
	Present Instant

	Reset    Instant       // 0: none; the state's Reset becomes this, unless it is later
	ResetTTL time.Duration // how long a reset is kept, in whole seconds
	Counts   bool          // the key has counters, which a reset must cover
}

// CellWrite replaces a cell, or removes it if Version is zero, on the condition that the cell has not changed since it was
// read. If it has changed, which it can't within an Update, the Write stores nothing, and returns an error that wraps
// ErrConflict. After any other error the cell may be stored, now or later, as long as the condition holds.
type CellWrite struct {
	If      EventID // the version that the cell must have; zero: it must not exist
	Version EventID // the new version
	Value   []byte
	TTL     time.Duration // how long it is kept, in whole seconds; 0: for ever
	Serial  policy.Level  // policy.LevelSerial or policy.LevelLocalSerial

	Claim bool   // the cell claims a name that callers may choose: a bounded store has a bound of its own for claims
	Owner uint64 // of a Claim: a hash of its owner, so that no owner takes all the room; 0: none
}

// LogWrite names one log of a key.
type LogWrite struct {
	Span Span
	TTL  time.Duration // time to live of the appended events, in whole seconds
	Keep int           // number of the newest events that an Update needs; a store in memory may merge older ones
}

// Again returns w for another attempt after err. If the first attempt may have added the units of Add, they are 0 in it.
func (w *Write) Again(err error) *Write {
	if len(w.Add) == 0 || errors.Is(err, ErrNotStored) {
		return w
	}
	repeated := *w
	repeated.Add = Emptied(w.Add)
	return &repeated
}

// Emptied returns a copy of counts with 0 units.
func Emptied(counts []Count) []Count {
	same := slices.Clone(counts)
	for i := range same {
		same[i].Units = 0
	}
	return same
}
