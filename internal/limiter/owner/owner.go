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

// Owners knows which instance decides for a key. Each key has one owner, or all instances decide
// for it.
type Owners interface {
	// Place returns who decides for key, waiting until somebody does.
	Place(ctx context.Context, key store.Key) (Place, error)
	// PlaceFor returns the right by which this instance decides for key, which a peer handed on
	// that knew the view of that number. An error that wraps ErrRefused says that it does not.
	PlaceFor(ctx context.Context, key store.Key, view int64) (Right, error)
	// Guest returns the right to count for keys that others own, once their owners know.
	Guest(ctx context.Context) (Right, error)
}

// Place is who decides for a key: this instance by Right, or else Owner.
type Place struct {
	Right Right // to be left in the end
	Owner Peer
	View  int64 // the number of the view that says so
}

// Right is an instance's right to count for a key. Whoever admits something has its units
// acknowledged by the store first, and Verify return nil then.
type Right interface {
	// Owned reports whether this instance alone counts for the key: what it remembers is all
	// there is, for as long as it has the right.
	Owned() bool
	// Began returns when the right began, by the monotonic clock.
	Began() time.Time
	// Verified returns when the latest look at whether the right holds began that said so, by the
	// monotonic clock; the zero Time: none did, or the right has ended.
	Verified() time.Time
	// Verify returns nil if the right was not taken away before it was called. An error that
	// wraps ErrRightEnded says that it was, any other one that nobody knows.
	Verify(ctx context.Context) error
	// IsNew reports whether nothing is counted for key, of which nothing matters that was counted
	// longer ago than life.
	IsNew(key store.Key, life time.Duration) bool
	// Note says that something is about to be counted for key, which matters for life. An error that
	// wraps ErrRightEnded says that whoever owns the key now may not know of it.
	Note(key store.Key, life time.Duration) error
	// Leave ends the use of it.
	Leave()
}

// Peer is another instance.
type Peer interface {
	// Decide has it decide call, and fills in answer. Errors wrap ErrRefused or store.ErrNotStored where
	// nothing was counted, or are a count.StoreError; after any other, units may be counted.
	Decide(ctx context.Context, call *Call, answer *Answer) error
	// Tell is Decide for who needs no answer: nobody knows whether call arrives.
	Tell(call *Call)
}

// ErrRightEnded is a right that is over: another instance decides for the key.
var ErrRightEnded = errors.New("this instance no longer decides for the key")

// ErrRefused is a Call that an instance does not decide: it does not own the key, or its
// policy is another one. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide that")

const (
	// OpOpen has a key's owner remember nothing of it for a while, in which others count for it.
	OpOpen count.Op = "open"
	// OpCommit has stay what was prepared.
	OpCommit count.Op = "commit"
	// OpAbort gives back what was prepared, in the flight of its key.
	OpAbort count.Op = "abort"
	// OpGiveBack gives back, or confirms, what a receipt says.
	OpGiveBack count.Op = "give_back"
)

// Call is one demand on its way to the instance that owns its key. It holds keys, never an
// identifier.
type Call struct {
	Policy  string
	Print   uint64      // of the policy's definition: who has another one must not decide
	Version int64       // of the asker's policies; 0: they have none
	Key     store.Key   // that is written under
	Old     []store.Key // that are read as well, while the hash key changes
	Op      count.Op    // OpCheck, OpRecord, OpTake, or one of the package's own
	Limit   int64       // that the demand brought; 0: none
	Cost    int64       // units; to open a key, the asker's store timeout in milliseconds
	View    int64       // the number of the view by which the owner was chosen

	Keep time.Duration // to open a key: for how long what is counted for it matters

	Back *count.Entry // to give back or to confirm: what a receipt says, which is claimed

	Prepare store.EventID // of a take, under which it is prepared; to commit or abort that; zero: it stays
	AtOnce  bool          // of a take: it is not to wait for other calls
}

// Valid reports whether c asks for anything that there is. It does not look at the policy.
func (c *Call) Valid() bool {
	switch c.Op {
	case count.OpCheck, count.OpRecord, count.OpTake:
		return c.Cost >= 1 && c.Cost <= policy.MaxCost
	case OpCommit, OpAbort:
		return c.Prepare != (store.EventID{})
	case OpGiveBack:
		return c.Back != nil && c.Back.Claimed > 0 && c.Back.Cost >= 1 && c.Back.Cost <= policy.MaxCost
	case OpOpen:
		return c.Cost >= 0 && c.Cost <= maxGuestTime.Milliseconds() && c.Keep > 0 && c.Keep <= LongestLife
	}
	return false
}

// Answer is what the owner decided.
type Answer struct {
	Verdicts   []count.Verdict // one for each of the policy's limits, in their order
	WouldAllow bool
	Remembered bool
	Recorded   count.Recorded
	Entry      Entry         // what was counted, if Recorded is count.RecordedYes
	Steady     time.Duration // for how long a denial stays as it is, if nothing is given back; 0: unknown
}

// Entry is what was counted for a Call: what it takes beside the key to give it back.
type Entry struct {
	ID    store.EventID
	At    store.Instant
	Epoch store.Instant // the reset that it was counted under; 0: none
	Cost  int64
}

// maxGuestTime is the longest store timeout of an instance that has a key opened.
const maxGuestTime = time.Minute

// LongestLife is that of any policy: two of the longest windows, and what clocks may differ.
const LongestLife = 2*policy.MaxWindow + 24*time.Hour

// Pause is between two tries to reach an owner: members agree on another one meanwhile.
const Pause = 10 * time.Millisecond

// NewerError is an ErrRefused of an instance that has a later version of the policies.
type NewerError struct{ Version int64 }

// Error names the version.
func (e *NewerError) Error() string {
	return fmt.Sprintf("version %d of the policies is in force there", e.Version)
}

// Is reports that e is ErrRefused.
func (e *NewerError) Is(target error) bool { return target == ErrRefused }
