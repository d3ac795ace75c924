package limiter

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
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
	// Decide has it decide call, and fills in answer. Errors wrap ErrRefused or ErrNotStored where
	// nothing was counted, or are a StoreError; after any other, units may be counted.
	Decide(ctx context.Context, call *PeerCall, answer *PeerAnswer) error
	// Tell is Decide for who needs no answer: nobody knows whether call arrives.
	Tell(call *PeerCall)
}

// ErrRightEnded is a right that is over: another instance decides for the key.
var ErrRightEnded = errors.New("this instance no longer decides for the key")

// ErrRefused is a PeerCall that an instance does not decide: it does not own the key, or its
// policy is another one. Nothing was counted.
var ErrRefused = errors.New("this instance does not decide that")

const (
	// opOpen has a key's owner remember nothing of it for a while, in which others count for it.
	opOpen count.Op = "open"
	// opCommit has stay what was prepared.
	opCommit count.Op = "commit"
)

// PeerCall is one demand on its way to the instance that owns its key. It holds keys, never an
// identifier.
type PeerCall struct {
	Policy  string
	Print   uint64      // of the policy's definition: who has another one must not decide
	Version int64       // of the asker's policies; 0: they have none
	Key     store.Key   // that is written under
	Old     []store.Key // that are read as well, while the hash key changes
	Op      count.Op    // OpCheck, OpRecord, OpTake, or one of the package's own
	Cost    int64       // units; to open a key, the asker's store timeout in milliseconds
	View    int64       // the number of the view by which the owner was chosen

	Keep time.Duration // to open a key: for how long what is counted for it matters

	Prepare store.EventID // of a take, under which it is prepared; to commit or abort that; zero: it stays
	AtOnce  bool          // of a take: it is not to wait for other calls
}

// Valid reports whether c asks for anything that there is. It does not look at the policy.
func (c *PeerCall) Valid() bool {
	switch c.Op {
	case count.OpCheck, count.OpRecord, count.OpTake:
		return c.Cost >= 1 && c.Cost <= policy.MaxCost
	case opCommit, opAbort:
		return c.Prepare != (store.EventID{})
	case opOpen:
		return c.Cost >= 0 && c.Cost <= maxGuestTime.Milliseconds() && c.Keep > 0 && c.Keep <= longestLife
	}
	return false
}

// PeerAnswer is what the owner decided.
type PeerAnswer struct {
	Verdicts   []count.Verdict // one for each of the policy's limits, in their order
	WouldAllow bool
	Remembered bool
	Recorded   count.Recorded
	Entry      PeerEntry     // what was counted, if Recorded is RecordedYes
	Steady     time.Duration // for how long a denial stays as it is, if nothing is given back; 0: unknown
}

// PeerEntry is what was counted for a PeerCall: what it takes beside the key to give it back.
type PeerEntry struct {
	ID    store.EventID
	At    store.Instant
	Epoch store.Instant // the reset that it was counted under; 0: none
	Cost  int64
}

// maxGuestTime is the longest store timeout of an instance that has a key opened.
const maxGuestTime = time.Minute

// ownerPause is between two tries to reach an owner: members agree on another one meanwhile.
const ownerPause = 10 * time.Millisecond

// maxRefused is how many times an owner may refuse a call before whoever asks counts it as a guest: it
// has another policy then, as instances do that are given another file one after the other.
const maxRefused = 3

// printOf returns what tells the definition of p from others, but for what only people read.
func printOf(p *policy.Policy) uint64 {
	told := *p
	told.Description = ""
	text, err := json.Marshal(&told)
	if err != nil {
		return 0
	}
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// isPlain reports whether c is counted for one key by one step, with nothing held: its owner can
// decide it from memory.
func (c *charge) isPlain() bool {
	return len(c.plan.parts) == 0 && c.hold == 0 && c.id == (store.EventID{}) && !c.ends && c.over == nil
}

// byOwner has c decided by who owns its key.
func (e *Engine) byOwner(ctx context.Context, c *charge) {
	if e.denied.answer(c) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, e.opts.StoreTimeout)
	defer cancel()
	for refused := 0; refused < maxRefused; {
		place, err := e.opts.Owners.Place(ctx, c.key)
		if err != nil {
			c.err = &StoreError{Recorded: count.RecordedNo, Err: unavailable(err)}
			return
		}
		outcome := asked
		if c.owner = place.Owner; place.Right != nil {
			e.decideBy(ctx, c, place.Right)
		} else {
			outcome = e.askOwner(ctx, c, &place)
		}
		switch outcome {
		case asked:
			if !e.mayAskAgain(ctx, c) {
				return
			}
			c.err = nil
			continue
		case refusedThat:
			refused++
		case superseded:
			c.err = &StoreError{Recorded: count.RecordedNo, Err: errSuperseded}
			return
		}
		if err := pause(ctx, ownerPause); err != nil {
			err = fmt.Errorf("%w: the owner of the key can't be reached: %w", store.ErrUnavailable, err)
			c.err = &StoreError{Recorded: count.RecordedNo, Err: err}
			return
		}
	}
	now, err := e.instant()
	if err != nil {
		c.err = err
		return
	}
	c.owner = nil
	e.decideAsGuest(ctx, c, now)
}

// What comes of asking an owner.
const (
	asked       = iota // it may have decided
	refusedThat        // it surely did not: it has another policy, or the key no longer
	unreached          // it surely did not
	superseded         // it surely did not: it has later policies, and so has this instance now
)

// askOwner has another instance decide c.
func (e *Engine) askOwner(ctx context.Context, c *charge, place *Place) (outcome int) {
	call := PeerCall{
		Policy: c.plan.Name, Print: c.plan.print, Version: c.plan.version, Key: c.key, Old: c.old, Op: c.op, Cost: c.cost,
		View: place.View, Prepare: c.prepare, AtOnce: c.atOnce,
	}
	var a PeerAnswer
	changes, began := e.denied.changes.of(&c.key), time.Now()
	err := place.Owner.Decide(ctx, &call, &a)
	switch failed := (*StoreError)(nil); {
	case err == nil:
		if c.err = a.fill(&c.decision, c.plan); c.err == nil {
			e.denied.put(c, &a, began, changes)
		}
	case errors.Is(err, ErrRefused):
		if e.catchesUp(ctx, err) && c.mayBeginAnew {
			return superseded
		}
		return refusedThat
	case errors.As(err, &failed):
		c.err = err
	case errors.Is(err, store.ErrNotStored):
		return unreached
	case c.op == count.OpCheck:
		c.err = &StoreError{Recorded: count.RecordedNo, Err: err}
	default:
		c.err = &StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	return asked
}

// decideBy decides c by right, which it leaves, and admits nothing unless that still holds.
func (e *Engine) decideBy(ctx context.Context, c *charge, right Right) {
	defer right.Leave()
	now, err := e.instant()
	if err != nil {
		c.err = err
		return
	}
	c.right = right
	later := c.plan.behind && right.Owned() // what is admitted is verified and written
	if later && c.op != count.OpCheck {
		if err := e.shared.counted.behind.holds(ctx, right); err != nil {
			c.err = &StoreError{Recorded: count.RecordedNo, Err: unavailable(err)}
			return
		}
	}
	e.shared.decide(ctx, c, now)
	if c.err == nil && c.decision.Recorded == count.RecordedYes && !c.plan.Cell && !later {
		c.err = verify(ctx, right)
	}
}

// verify asks until it is known whether right still holds. The error is a StoreError.
func verify(ctx context.Context, right Right) error {
	for {
		err := right.Verify(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, ErrRightEnded) || pause(ctx, ownerPause) != nil:
			return &StoreError{Recorded: count.RecordedUnknown, Err: unavailable(err)}
		}
	}
}

// fill makes d what a says under p.
func (a *PeerAnswer) fill(d *count.Decision, p *plan) error {
	limits := p.Begin(d)
	if len(a.Verdicts) != len(limits) {
		err := fmt.Errorf("%w: a peer answered for %d limits of %d", store.ErrUnavailable, len(a.Verdicts), len(limits))
		return &StoreError{Recorded: count.RecordedUnknown, Err: err}
	}
	for i := range limits {
		limits[i].Verdict = a.Verdicts[i]
	}
	d.Conclude()
	d.Remembered, d.Recorded = a.Remembered, a.Recorded
	d.WouldAllow = a.WouldAllow
	d.Allowed = a.WouldAllow || p.Mode != policy.ModeEnforce
	d.Entry = count.Entry{ID: a.Entry.ID, At: a.Entry.At, Epoch: a.Entry.Epoch, Cost: a.Entry.Cost}
	return nil
}

// steadyFor returns for how long a denial of t, which right decided, stays as it is.
func (e *Engine) steadyFor(t *target, right Right) time.Duration {
	now, err := e.instant()
	if err != nil || !right.Owned() || t.plan.Cell {
		return 0
	}
	return e.shared.counted.owned.steadyFor(t, right, now)
}

// DecideForPeer decides what another instance handed on, and fills in a. Errors are those of
// Take, and ErrRefused. It tells no observer, and blocks nobody: the instance that was asked
// does.
func (e *Engine) DecideForPeer(ctx context.Context, call *PeerCall, a *PeerAnswer) error {
	if e.opts.Owners == nil || e.shared == nil {
		return ErrRefused
	}
	switch call.Op {
	case opCommit: // by whatever right it was prepared
		a.Recorded = count.RecordedYes
		e.shared.prepared.commit(call.Key, call.Prepare)
		return nil
	case opAbort:
		a.Recorded = count.RecordedNo
		return e.shared.abort(ctx, call.Key, call.Prepare)
	}
	p, err := e.planForPeer(ctx, call)
	if err != nil {
		return err
	}
	right, err := e.opts.Owners.PlaceFor(ctx, call.Key, call.View)
	if err != nil {
		return err
	}
	if call.Op == opOpen {
		defer right.Leave()
		a.Recorded = count.RecordedNo
		return e.open(ctx, right, call.Key, time.Duration(call.Cost)*time.Millisecond, call.Keep)
	}
	c := charge{target: target{plan: p, key: call.Key, old: call.Old}, op: call.Op, cost: call.Cost}
	c.prepare, c.atOnce = call.Prepare, call.AtOnce
	if e.decideBy(ctx, &c, right); c.err != nil {
		return c.err
	}
	d := &c.decision
	if !d.WouldAllow {
		a.Steady = e.steadyFor(&c.target, right)
	}
	for i := range d.Limits() {
		a.Verdicts = append(a.Verdicts, d.Limits()[i].Verdict)
	}
	a.WouldAllow, a.Remembered, a.Recorded = d.WouldAllow, d.Remembered, d.Recorded
	a.Entry = PeerEntry{ID: d.Entry.ID, At: d.Entry.At, Epoch: d.Entry.Epoch, Cost: d.Entry.Cost}
	return nil
}
