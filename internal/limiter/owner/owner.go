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

// Owners finds the instance that decides for a key. Each key has one owner, or all instances decide for it.
type Owners interface {
	// Place returns the place that decides for key. It waits until there is one.
	Place(ctx context.Context, key store.Key) (Place, error)
	// PlaceFor returns the right by which this instance decides for key, for a call that a peer handed on under the
	// view with that number. An error that wraps ErrRefused means that it does not decide for key.
	PlaceFor(ctx context.Context, key store.Key, view int64) (Right, error)
}

// Place is the decider for a key: this instance by Right, or else Owner.
type Place struct {
	Right Right // the caller must call Leave
	Owner Peer
	View  int64 // the number of the view that is the reason
}

// Right is an instance's right to count for a key. Before an instance admits a call, the store must have acknowledged
// its units, and after that Verify must have returned nil.
type Right interface {
	// Owned reports whether this instance alone counts for the key, so that its memory is complete for as long as it
	// has the right.
	Owned() bool
	// Began returns when the right began, by the monotonic clock.
	Began() time.Time
	// Verified returns when the latest successful check of the right began, by the monotonic clock; the zero Time if
	// there was none, or the right has ended.
	Verified() time.Time
	// Verify returns nil if the right had not ended when it was called. An error that wraps ErrRightEnded means that it
	// had; after any other error it is not known.
	Verify(ctx context.Context) error
	// IsNew reports whether nothing is counted for key. Units of key matter for life.
	IsNew(key store.Key, life time.Duration) bool
	// Note notes that units are about to be counted for key, which matter for life. An error that wraps ErrRightEnded
	// means that the key's present owner may not know of them.
	Note(key store.Key, life time.Duration) error
	// Leave ends this use of the right.
	Leave()
}

// Peer is another instance.
type Peer interface {
	// Decide sends call to the peer, and fills in answer with its decision. Errors wrap ErrRefused or
	// store.ErrNotStored if nothing was counted, or are a count.StoreError; after any other error, units may be
	// counted.
	Decide(ctx context.Context, call *Call, answer *Answer) error
	// Tell is Decide without an answer. It is not known whether call arrives.
	Tell(call *Call)
}

// ErrRightEnded means that a right has ended: another instance decides for the key.
var ErrRightEnded = errors.New("this instance no longer decides for the key")

// ErrRefused means that an instance does not decide a Call, as it does not own the key. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide this call")

// ErrUndefined is the ErrRefused of an instance that does not know the definition of a Call's policy, and decides the Call
// if it has the Definition.
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

// Call is one demand on its way to the instance that owns its key. It holds keys, never an
// identifier.
type Call struct {
	Policy string
	Print  uint64      // of the policy's definition, by which the call is decided
	Key    store.Key   // for writes
	Old    []store.Key // further keys to read, while the hash key changes
	Op     count.Op    // OpCheck, OpRecord, OpTake, OpReserve, or one of the package's own
	Limit  int64       // the limit that came with the demand; 0: none
	Cost   int64       // units
	View   int64       // the number of the view by which the owner was chosen

	Hold time.Duration // for OpReserve: for how long the units are held

	Back *count.Entry // for OpGiveBack and OpSettle: the counted or held units

	ID store.EventID // of the event of a take or record; zero: the owner makes one

	Prepare store.EventID // the id under which a take is prepared, or of the take to commit or abort; zero: not prepared
	AtOnce  bool          // of a take: it must not wait for other calls

	Definition []byte // of the policy, as demand.Plan.Definition returns it; empty: the owner may know it by its print
}

// Valid reports whether c's operation exists and its fields fit it. It does not look at the policy.
func (c *Call) Valid() bool {
	switch c.Op {
	case count.OpCheck: // of nothing, for what remains
		return c.Cost >= 0 && c.Cost <= policy.MaxCost
	case count.OpRecord, count.OpTake:
		return c.Cost >= 1 && c.Cost <= policy.MaxCost
	case count.OpReserve:
		return c.Cost >= 1 && c.Cost <= policy.MaxCost && c.Hold > 0 && c.Hold <= LongestLife
	case OpCommit, OpAbort:
		return c.Prepare != (store.EventID{})
	case OpGiveBack, OpSettle:
		return c.Back != nil && c.Back.Cost >= 1 && c.Back.Cost <= policy.MaxCost && c.Back.Kept >= 0 && c.Back.Claimed >= 0
	case OpReset:
		return true
	}
	return false
}

// Answer is the owner's decision.
type Answer struct {
	Verdicts   []count.Verdict // one for each of the policy's limits, in their order
	WouldAllow bool
	Remembered bool
	Recorded   count.Recorded
	Entry      count.Entry   // the counted units, if Recorded is count.RecordedYes
	Steady     time.Duration // for how long a denial remains true if nothing is given back; 0: unknown
}

// LongestLife is the longest Life of a plan: two of the longest windows, and the difference of clocks.
const LongestLife = 2*policy.MaxWindow + 24*time.Hour

// Pause is the wait between two attempts to reach an owner, in which members agree on another one.
const Pause = 10 * time.Millisecond
