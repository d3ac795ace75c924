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
// its units, and then Verify must have returned nil. Under policy.GuaranteeLocal it admits first.
type Term interface {
	// Owned reports whether this instance alone counts for the key, so that its memory has all units of the key for as
	// long as it has the term.
	Owned() bool
	// Began returns when the term began, by the monotonic clock.
	Began() time.Time
	// Verified returns when the latest successful check of the term began, by the monotonic clock; the zero Time if no
	// check has succeeded, or the term has ended.
	Verified() time.Time
	// Verify returns nil if the term had not ended when Verify was called, and an error that wraps ErrTermEnded if it
	// had. After any other error, it is unknown whether the term has ended.
	Verify(ctx context.Context) error
	// IsNew reports whether key certainly has no units. life is the time for which units of the key matter.
	IsNew(key store.Key, life time.Duration) bool
	// Note notes that units are about to be counted for key. life is the time for which they matter. An error that wraps
	// ErrTermEnded means that the present owner of the key may not see them.
	Note(key store.Key, life time.Duration) error
	// Leave ends this use of the term.
	Leave()
}

// ErrTermEnded means that a term has ended: another instance decides for the key.
var ErrTermEnded = errors.New("this instance no longer decides for the key")

// ErrRefused means that an instance does not decide a charge, because it does not own the key. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide this call")

// ErrUndefined is an ErrRefused of an instance that does not know the definition of the charge's policy. The instance
// decides the charge if it gets the definition's text.
var ErrUndefined = fmt.Errorf("%w: it does not know the policy's definition", ErrRefused)

const (
	// OpCommit makes prepared units permanent.
	OpCommit count.Op = "commit"
	// OpAbort gives prepared units back, in a batch of their key.
	OpAbort count.Op = "abort"
	// OpGiveBack gives back or confirms the units of a receipt.
	OpGiveBack count.Op = "give_back"
	// OpSettle makes a held event permanent.
	OpSettle count.Op = "settle"
	// OpReset removes all units of the key.
	OpReset count.Op = "reset"
)

// LongestLife is the maximum of demand.Plan's Life: two of the longest windows, and a margin for clocks that differ.
const LongestLife = 2*policy.MaxWindow + 24*time.Hour

// Pause is the wait between two attempts to reach an owner. Meanwhile members may agree on another owner.
const Pause = 10 * time.Millisecond
