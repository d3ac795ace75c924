package limiter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// serial decides by compare-and-set on a key's cell: it reads, judges, and writes on
// the condition that nobody wrote meanwhile; else it begins again. What it answers is
// exact, and nobody is denied for units that are about to be taken back.
type serial struct {
	store store.Store
	ids   *store.EventIDs
	opts  *Options
	full  *denials // what decides while the store does not answer; nothing else of it is gone by
}

const (
	// serialTries is into how many parts the store timeout is cut, each as long as one
	// conditional write may take before its fate is looked into.
	serialTries = 3
	// conflictWait is the longest first wait after another instance came first; it
	// doubles up to maxConflictWait.
	conflictWait    = 2 * time.Millisecond
	maxConflictWait = 64 * time.Millisecond
)

// settle answers every request of batch, all of them for t.
func (x *serial) settle(ctx context.Context, t *target, batch []*request) {
	mark := x.full.since(t.key)
	var last *store.State
	var at store.Instant
	err := x.update(ctx, t, len(batch), func(s *store.State, now store.Instant, w *store.Write) bool {
		last, at = s, now
		recorded := false
		ahead := now.Sub(x.opts.timing.Instant())
		for _, r := range batch {
			id := x.ids.Next(now)
			if r.alone {
				t.plan.Decide(&r.without, s, count.OpCheck, id, now, r.cost)
				r.without.Postpone(ahead)
			}
			t.plan.Decide(&r.decision, s, r.op, id, now, r.cost)
			r.decision.Postpone(ahead)
			if r.decision.Recorded != count.RecordedYes {
				continue
			}
			recorded = true
			r.decision.Entry = count.Entry{ID: id, At: now, Epoch: s.Reset, Cost: r.cost}
			if len(t.plan.Logs) > 0 {
				w.Events = append(w.Events, store.Event{ID: id, At: now, Cost: r.cost, Ends: endsAfter(now, r.hold)})
			}
		}
		if len(w.Events) > 0 && batch[0].hold > 0 {
			w.Logs = t.plan.holdWrites(batch[0].hold, x.opts)
		}
		return recorded
	})
	if err == nil {
		x.full.keepFull(t, last, at, mark)
	}
	for _, r := range batch {
		r.err = err
	}
}

// check answers r as if it came now, and records nothing. It reads past whatever is
// under way, so that it is exact as of some moment while it ran.
func (x *serial) check(ctx context.Context, t *target, r *request) {
	mark := x.full.since(t.key)
	s, c, err := x.read(ctx, t, 1, x.opts.Serial)
	if err != nil {
		r.err = &StoreError{Recorded: count.RecordedNo, Err: err}
		return
	}
	now, err := x.instant(&s, &c)
	if err != nil {
		r.err = &StoreError{Recorded: count.RecordedNo, Err: err}
		return
	}
	t.plan.Decide(&r.decision, &s, count.OpCheck, store.EventID{}, now, r.cost)
	r.decision.Postpone(now.Sub(x.opts.timing.Instant()))
	x.full.keepFull(t, &s, now, mark)
}

// giveBack takes what e counted for t out of its cell. Like all that is given back it
// is done once: a refund in doubt is not repeated.
func (x *serial) giveBack(ctx context.Context, t *target, e *count.Entry, sums bool) error {
	defer x.full.forget(t.key)
	return x.update(ctx, t, 1, func(s *store.State, now store.Instant, w *store.Write) bool {
		if s.Reset >= e.At {
			return false
		}
		if sums {
			t.plan.GiveBack(s, e, now)
		}
		if len(t.plan.Logs) > 0 {
			w.Remove = []store.EventID{e.ID}
		}
		return true
	})
}

// reset forgets all that is counted for t.
func (x *serial) reset(ctx context.Context, t *target) error {
	defer x.full.forget(t.key)
	return x.update(ctx, t, 1, func(s *store.State, now store.Instant, _ *store.Write) bool {
		s.Reset, s.Counts, s.Levels = now, nil, nil
		return true
	})
}

// update changes t's cell: change is given its state and the instant of the change,
// and reports whether there is anything to store; it puts events to append or to
// remove into the write, and everything else into the state. It may be called several
// times, each time with another state, and what it did last counts. The error is a
// StoreError.
func (x *serial) update(
	ctx context.Context, t *target, own int, change func(s *store.State, now store.Instant, w *store.Write) bool,
) error {
	once := func(s *store.State, _ bool, now store.Instant, w *store.Write) bool { return change(s, now, w) }
	return x.updateOnce(ctx, t, own, new(attempts), once)
}

// attempts are the versions of conditional writes of the same change, one of which may be
// stored, now or later. Of more than keptVersions the oldest are surely not.
type attempts []store.EventID

func (a *attempts) add(version store.EventID) {
	*a = append(*a, version)
	*a = (*a)[max(0, len(*a)-keptVersions):]
}

// updateOnce is update for a change that may have been tried before, by the attempts in tried:
// change is also told whether one of these is stored. It adds to tried those that it makes, so
// that whoever gets an error may try the same change again, and have it stored once. They are
// found for as long as the cell tells of them.
func (x *serial) updateOnce(
	ctx context.Context, t *target, own int, tried *attempts, change func(s *store.State, stored bool, now store.Instant, w *store.Write) bool,
) error {
	for wait := conflictWait; ; wait = min(2*wait, maxConflictWait) {
		s, c, err := x.read(ctx, t, own, x.opts.Serial.Quorum())
		if err != nil {
			return &StoreError{Recorded: count.RecordedNo, Err: err}
		}
		now, err := x.instant(&s, &c)
		if err != nil {
			return &StoreError{Recorded: count.RecordedNo, Err: err}
		}
		w := &store.Write{Key: t.key, Level: x.opts.Serial.Quorum(), Logs: t.plan.logWrites}
		if !change(&s, slices.ContainsFunc(*tried, c.has), now, w) {
			return nil
		}
		err = x.swap(ctx, t, w, func() store.CellWrite {
			cell := t.plan.shut(nil, &s, &c, x.ids.Next(now), now, x.opts)
			tried.add(cell.Version)
			return cell
		})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
		if err := pause(ctx, x.opts.jitter(wait)); err != nil {
			return &StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: other instances kept coming first: %w", store.ErrUnavailable, err)}
		}
	}
}

// instant returns when a change of the state takes place: never before anything that
// is in it. The error says that this instance's clock is beyond the tolerance.
func (x *serial) instant(s *store.State, c *chain) (store.Instant, error) {
	now, err := x.opts.timing.Checked()
	return max(now, c.newest, s.Reset+1), err
}

// read returns the state of t and the past of its cell.
func (x *serial) read(ctx context.Context, t *target, own int, level policy.Level) (store.State, chain, error) {
	q := t.plan.Query(t.key, x.opts.timing.Instant(), own, nil)
	q.Level = level
	s, err := x.opts.readPatiently(ctx, x.store, &q)
	if err != nil {
		return store.State{}, chain{}, err
	}
	c, err := t.plan.open(&s)
	return s, c, err
}

// swap makes the conditional write w with a cell from seal, which gives every attempt
// a version of its own. Its error is ErrConflict when somebody else came first and
// nothing of w is stored or will ever be; else a StoreError.
//
// An attempt without an answer may be stored later: that there is no trace of it now
// proves nothing. It is dead only once another version is stored on the same
// condition; so it is repeated, with the same events, until one of the attempts or
// somebody else's write is there.
func (x *serial) swap(ctx context.Context, t *target, w *store.Write, seal func() store.CellWrite) error {
	var tried []store.EventID
	var failed error
	for ctx.Err() == nil {
		cell := seal()
		w.Cell, tried = &cell, append(tried, cell.Version)
		failed = x.attempt(ctx, w)
		switch {
		case failed == nil:
			return nil
		case len(tried) == 1 && errors.Is(failed, store.ErrConflict):
			return store.ErrConflict
		case len(tried) == 1 && errors.Is(failed, store.ErrNotStored):
			return &StoreError{Recorded: count.RecordedNo, Err: failed}
		}
		switch x.fate(ctx, t, w.Cell.If, tried) {
		case fateStored:
			return nil
		case fateDead:
			return store.ErrConflict
		case fateLost:
			return &StoreError{Recorded: count.RecordedUnknown, Err: store.Untold(failed)}
		case fateOpen:
			_ = pause(ctx, x.opts.jitter(conflictWait))
		}
	}
	if len(tried) == 0 {
		return &StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, ctx.Err())}
	}
	return &StoreError{Recorded: count.RecordedUnknown, Err: store.Untold(failed)}
}

// fate is what became of attempts without an answer.
type fate int

const (
	fateOpen   fate = iota // any of them may still be stored
	fateStored             // one of them is
	fateDead               // none is, and none will be
	fateLost               // nobody can tell any more
)

// fate finds out what became of the attempts with the versions tried, all on the
// condition that the cell's version was expected. A serial read completes what is half
// done, so what it doesn't show is stored never or by a later write.
func (x *serial) fate(ctx context.Context, t *target, expected store.EventID, tried []store.EventID) fate {
	s, c, err := x.read(ctx, t, 1, x.opts.Serial)
	switch {
	case err != nil || s.Cell.Version == expected:
		return fateOpen
	case slices.ContainsFunc(tried, c.has):
		return fateStored
	case s.Cell.Version == store.EventID{}: // it expired, and its version never comes back
		return fateDead
	case c.has(expected), expected == store.EventID{} && c.whole:
		return fateDead
	}
	return fateLost
}

// attempt makes one conditional write, in a part of the time there is.
func (x *serial) attempt(ctx context.Context, w *store.Write) error {
	ctx, cancel := context.WithTimeout(ctx, x.opts.StoreTimeout/serialTries)
	defer cancel()
	return x.store.Write(ctx, w)
}

// pause waits for d. The error says that ctx ended before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
