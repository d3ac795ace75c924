package owner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Term is an instance's right to count for a key. Before an instance admits a call, the store must have acknowledged
// its units, and after that Verify must have returned nil.
type Term interface {
	// Owned reports whether this instance alone counts for the key, so that its memory is complete for as long as it
	// has the term.
	Owned() bool
	// Began returns when the term began, by the monotonic clock.
	Began() time.Time
	// Verified returns when the latest successful check of the term began, by the monotonic clock; the zero Time if
	// there was none, or the term has ended.
	Verified() time.Time
	// Verify returns nil if the term had not ended when it was called. An error that wraps ErrTermEnded means that it
	// had; after any other error it is not known.
	Verify(ctx context.Context) error
	// IsNew reports whether nothing is counted for key. Units of key matter for life.
	IsNew(key store.Key, life time.Duration) bool
	// Note notes that units are about to be counted for key, which matter for life. An error that wraps ErrTermEnded
	// means that the key's present owner may not know of them.
	Note(key store.Key, life time.Duration) error
	// Leave ends this use of the term.
	Leave()
}

// ErrTermEnded means that a term has ended: another instance decides for the key.
var ErrTermEnded = errors.New("this instance no longer decides for the key")

// ErrRefused means that an instance does not decide a charge, as it does not own the key. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide this call")

// ErrUndefined is the ErrRefused of an instance that does not know the definition of a charge's policy, and decides the
// charge if it gets the text.
var ErrUndefined = fmt.Errorf("%w: it does not know the policy's definition", ErrRefused)

const (
	// OpCommit makes prepared units permanent.
	OpCommit count.Op = "commit"
	// OpAbort gives prepared units back, in the flight of their key.
	OpAbort count.Op = "abort"
	// OpGiveBack gives back or confirms the units of a receipt.
	OpGiveBack count.Op = "give_back"
	// OpSettle makes a held event permanent.
	OpSettle count.Op = "settle"
	// OpReset removes all that is counted for the key.
	OpReset count.Op = "reset"
)

// LongestLife is the longest Life of a plan: two of the longest windows, and the difference of clocks.
const LongestLife = 2*policy.MaxWindow + 24*time.Hour

// Pause is the wait between two attempts to reach an owner, in which members agree on another one.
const Pause = 10 * time.Millisecond
