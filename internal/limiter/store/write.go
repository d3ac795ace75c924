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
	Settle bool       // Events were held and are permanent from now on; this wins over the hold, whichever arrives first
	Add    []Count    // Units added to the counters, negative to remove; repeating counts twice
	Put    []Tally    // running totals of the key in Span; safe to repeat
	Tally  bool       // the key's counts are running totals, which a reset must cover; Add is then empty
	Span   Span       // of the running totals
	Cell   *CellWrite // outside of an Update, nothing else is then written

	// Present, within an Update, is set after the clock was set back: before anything else is stored, events with a
	// later time get the time Present, a reset and epochs get a millisecond before it, and counters that become 0 are
	// dropped. 0: no time changes.
	Present Instant

	Reset    Instant       // 0: none; the state's Reset becomes this, unless it is later
	ResetTTL time.Duration // for how long a reset is kept; whole seconds
	Counts   bool          // the key has counters, which a reset must cover
}

// CellWrite replaces a cell, or removes it if Version is zero, on the condition that it has not changed since it was
// read; within an Update it can't have. If it has, the Write fails with an error that wraps ErrConflict, and stores
// nothing. After any other error it may be stored, now or later, as long as the condition holds.
type CellWrite struct {
	If      EventID // the version that the cell must have; zero: it must not exist
	Version EventID // the new version
	Value   []byte
	TTL     time.Duration // for how long it is kept; whole seconds; 0: for ever
	Serial  policy.Level  // policy.LevelSerial or policy.LevelLocalSerial

	Claim bool   // of something that happens once, under a name that callers may choose: a bounded store bounds claims apart
	Owner uint64 // of a Claim: a hash of its owner, so that no owner takes all the room; 0: none
}

// LogWrite names one log of a key.
type LogWrite struct {
	Span Span
	TTL  time.Duration // of the appended events; whole seconds
	Keep int           // number of the newest events that an Update needs; a store in memory may merge older ones
}

// Again returns w for another attempt after err: without the units that may have been added already.
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
