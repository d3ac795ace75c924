package cas

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Decider decides by compare-and-set on a key's cell: it reads, decides, and writes on the condition that the cell has
// not changed meanwhile. If it has, the Decider starts over. Its answers are exact, and it denies no call because of units
// that are about to be taken back.
type Decider struct {
	store store.Store
	ids   *store.EventIDs
	opts  *demand.Settings
	full  *denied.Denials // keeps full states, which decide while the store does not answer; its other parts are not used
	last  *latest
}

// New returns a Decider over store. It puts full states into full.
func New(store store.Store, ids *store.EventIDs, set *demand.Settings, full *denied.Denials) *Decider {
	return &Decider{store: store, ids: ids, opts: set, full: full, last: newLatest()}
}

const (
	// SerialTries is the divisor of the store timeout that gives the timeout of a conditional write. After it, a read
	// finds out whether the write was stored.
	SerialTries = 3
	// ConflictWait is the upper bound of the first wait after a conflict. It doubles up to maxConflictWait.
	ConflictWait    = 2 * time.Millisecond
	maxConflictWait = 64 * time.Millisecond
)

// DecideBatch decides all requests of batch, which are for t.
func (x *Decider) DecideBatch(ctx context.Context, t *demand.Target, batch []*demand.Charge) {
	mark := x.full.Since(t.Key)
	var last *store.State
	var at store.Instant
	err := x.update(ctx, t, func(s *store.State, now store.Instant) bool {
		last, at = s, now
		recorded := false
		ahead := now.Sub(x.opts.Timing.Instant())
		for _, r := range batch {
			id := x.ids.Next(now)
			t.Plan.Decide(&r.Decision, s, r.Op, id, now, r.Cost)
			r.Decision.Postpone(ahead)
			if r.Decision.Recorded != count.RecordedYes {
				continue
			}
			recorded = true
			r.Decision.Entry = count.Entry{ID: id, At: now, Epoch: s.Reset, Cost: r.Cost}
		}
		return recorded
	})
	if err == nil {
		x.full.KeepFull(t, last, at, mark)
	}
	for _, r := range batch {
		r.Err = err
	}
}

// Check decides all requests of batch, which are for one target, at the present instant, and records nothing. Its serial
// read completes writes in progress, so the answers are exact for some moment during each call.
func (x *Decider) Check(ctx context.Context, batch []*demand.Charge) {
	t := &batch[0].Target
	mark := x.full.Since(t.Key)
	var now store.Instant
	s, c, err := x.Read(ctx, t, x.opts.Serial)
	if err == nil {
		now, err = x.instant(&s, &c)
	}
	if err != nil {
		for _, r := range batch {
			r.Err = &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
		return
	}
	ahead := now.Sub(x.opts.Timing.Instant())
	for _, r := range batch {
		t.Plan.Decide(&r.Decision, &s, count.OpCheck, store.EventID{}, now, r.Cost)
		r.Decision.Postpone(ahead)
	}
	x.full.KeepFull(t, &s, now, mark)
}

// GiveBack removes e's units for t from its cell. If e is claimed, the units are removed once, however often GiveBack is
// called. Otherwise it must be called once.
func (x *Decider) GiveBack(ctx context.Context, t *demand.Target, e *count.Entry) error {
	defer x.full.Forget(t.Key)
	return x.update(ctx, t, func(s *store.State, now store.Instant) bool {
		if s.Reset >= e.At || e.Claimed > 0 && !s.Applied.Note(e.ID, e.Claimed, now, store.MaxApplied) {
			return false
		}
		t.Plan.GiveBack(s, e, now)
		return true
	})
}

// Reset removes all units of t's key.
func (x *Decider) Reset(ctx context.Context, t *demand.Target) error {
	defer x.full.Forget(t.Key)
	return x.update(ctx, t, func(s *store.State, now store.Instant) bool {
		s.Reset, s.Buckets, s.Conversions = now, nil, nil
		return true
	})
}

// update changes t's cell. It calls change with the cell's state and the instant of the change; change returns whether it
// has changed the state. update may call change several times, each time with another state, and stores the last one. The
// error is a StoreError.
func (x *Decider) update(ctx context.Context, t *demand.Target, change func(s *store.State, now store.Instant) bool) error {
	once := func(s *store.State, _ bool, now store.Instant) bool { return change(s, now) }
	return x.UpdateOnce(ctx, t, new(Attempts), once)
}

// Attempts are the versions of conditional writes of the same change, one of which may be stored, now or later. Add keeps
// the last keptVersions of them: a cell lists no more.
type Attempts []store.EventID

// Add notes an attempt to write version.
func (a *Attempts) Add(version store.EventID) {
	*a = append(*a, version)
	*a = (*a)[max(0, len(*a)-keptVersions):]
}

// UpdateOnce is update for a change that may have been tried before. tried has the earlier attempts, and change learns
// whether one of them is stored. UpdateOnce adds its own attempts to tried: after an error, the caller may try the same
// change again, and it is stored once. An attempt is found for as long as the cell lists it.
func (x *Decider) UpdateOnce(
	ctx context.Context, t *demand.Target, tried *Attempts, change func(s *store.State, stored bool, now store.Instant) bool,
) error {
	for wait := ConflictWait; ; wait = min(2*wait, maxConflictWait) {
		s, c, known, err := x.latest(ctx, t)
		if err != nil {
			return &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
		now, err := x.instant(&s, &c)
		if err != nil {
			return &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
		if !change(&s, slices.ContainsFunc(*tried, c.has), now) {
			if !known {
				return nil
			}
			x.last.cells.Remove(t.Key) // without a conditional write, the store does not check that the state is the latest
			continue
		}
		err = x.swap(ctx, t, func() store.CellWrite {
			cell := Shut(t.Plan, nil, &s, &c, x.ids.Next(now), now, x.opts)
			tried.Add(cell.Version)
			return cell
		})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if known {
			continue
		}
		if err := clock.Pause(ctx, x.opts.Jitter(wait)); err != nil {
			err = fmt.Errorf("%w: other instances changed the key again and again: %w", store.ErrUnavailable, err)
			return &count.StoreError{Recorded: count.RecordedNo, Err: err}
		}
	}
}

// latest returns the state of t and the history of its cell. known is true if they are from this instance's memory of the
// cell, and false if they are from the store.
func (x *Decider) latest(ctx context.Context, t *demand.Target) (s store.State, c Chain, known bool, err error) {
	if s, known = x.last.state(t, x.opts); known {
		c, err = Open(t.Plan, &s)
		return s, c, true, err
	}
	s, c, err = x.Read(ctx, t, x.opts.Serial.Quorum())
	return s, c, false, err
}

// instant returns the instant of a change to s: now, but not before the latest change or reset. It returns an error if this
// instance's clock is beyond the tolerance.
func (x *Decider) instant(s *store.State, c *Chain) (store.Instant, error) {
	now, err := x.opts.Timing.Checked()
	return max(now, c.newest, s.Reset+1), err
}

// Read returns the state of t and the history of its cell.
func (x *Decider) Read(ctx context.Context, t *demand.Target, level policy.Level) (store.State, Chain, error) {
	q := store.Query{Key: t.Key, Level: level, Cell: true}
	s, err := ReadPatiently(ctx, x.opts, x.store, &q)
	if err != nil {
		return store.State{}, Chain{}, err
	}
	c, err := Open(t.Plan, &s)
	return s, c, err
}

// ReadToChange is Read at the serial level. A change that follows soon need not read the cell again.
func (x *Decider) ReadToChange(ctx context.Context, t *demand.Target) (store.State, error) {
	began := time.Now()
	s, _, err := x.Read(ctx, t, x.opts.Serial)
	if err == nil {
		x.last.saw(t.Key, s.Cell, began)
	}
	return s, err
}

// SawNone notes that key has no cell.
func (x *Decider) SawNone(key store.Key) { x.last.saw(key, store.Cell{}, time.Now()) }

// swap replaces t's cell by one from seal, which gives every attempt a version of its own. Its error is ErrConflict if
// another write came first, and none of the attempts is stored or ever will be. Otherwise it is a StoreError.
//
// An attempt without an answer may be stored later, even if the cell does not list it now. Only a write of another version
// on the same condition rules that out. So swap repeats the attempt until one of the attempts or another write is stored.
func (x *Decider) swap(ctx context.Context, t *demand.Target, seal func() store.CellWrite) error {
	var tried []store.EventID
	var failed error
	for ctx.Err() == nil {
		cell := seal()
		tried = append(tried, cell.Version)
		if failed = Attempt(ctx, x.opts, x.store, &store.Write{Key: t.Key, Level: x.opts.Serial.Quorum(), Cell: &cell}); failed == nil {
			x.last.wrote(t.Key, &cell)
			return nil
		}
		x.last.wasWrong(t.Key)
		switch {
		case len(tried) == 1 && errors.Is(failed, store.ErrConflict):
			return store.ErrConflict
		case len(tried) == 1 && errors.Is(failed, store.ErrNotStored):
			return &count.StoreError{Recorded: count.RecordedNo, Err: failed}
		}
		switch x.fate(ctx, t, cell.If, tried) {
		case fateStored:
			return nil
		case fateDead:
			return store.ErrConflict
		case fateLost:
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Untold(failed)}
		case fateOpen:
			_ = clock.Pause(ctx, x.opts.Jitter(ConflictWait))
		}
	}
	if len(tried) == 0 {
		return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())}
	}
	return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Untold(failed)}
}

// fate says whether attempts without an answer are stored.
type fate int

const (
	fateOpen   fate = iota // one of them may be stored now or later
	fateStored             // one of them is stored
	fateDead               // none of them is stored, and none will be
	fateLost               // the cell no longer shows whether one of them was stored
)

// fate finds out whether one of the attempts with the versions tried is stored. Their condition was the expected version of
// the cell. A serial read completes writes that are half done, so it shows every attempt that is stored by then.
func (x *Decider) fate(ctx context.Context, t *demand.Target, expected store.EventID, tried []store.EventID) fate {
	s, c, err := x.Read(ctx, t, x.opts.Serial)
	switch {
	case err != nil || s.Cell.Version == expected:
		return fateOpen
	case slices.ContainsFunc(tried, c.has):
		return fateStored
	case s.Cell.Version == store.EventID{}: // the cell has expired, and no cell gets the expected version again
		return fateDead
	case c.has(expected), expected == store.EventID{} && c.whole:
		return fateDead
	}
	return fateLost
}

// Attempt makes one conditional write, within a part of the store timeout.
func Attempt(ctx context.Context, o *demand.Settings, s store.Store, w *store.Write) error {
	ctx, cancel := context.WithTimeout(ctx, o.StoreTimeout/SerialTries)
	defer cancel()
	return s.Write(ctx, w)
}

// serialReads is the number of attempts at a serial read: while other instances compare and set the same cell, the store
// may refuse it several times, each time at once.
const serialReads = 5

// ReadPatiently reads q. At a serial level it repeats reads that are refused.
func ReadPatiently(ctx context.Context, o *demand.Settings, store store.Store, q *store.Query) (s store.State, err error) {
	tries := 1
	if q.Level == policy.LevelSerial || q.Level == policy.LevelLocalSerial {
		tries = serialReads
	}
	for wait := ConflictWait; ; wait *= 2 {
		s, err = store.Read(ctx, q)
		if tries--; err == nil || tries == 0 || clock.Pause(ctx, wait/2+o.Jitter(wait)) != nil {
			return s, err
		}
	}
}
