package route

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Router has charges decided by the owners of their keys: by this instance, if it has the term, or by a peer.
type Router struct {
	owners demand.Owners
	shared *counted.Decider
	ids    *store.EventIDs
	set    *demand.Settings
}

// New returns a Router. If owners is nil, all instances decide for all keys.
func New(owners demand.Owners, shared *counted.Decider, ids *store.EventIDs, set *demand.Settings) *Router {
	if owners == nil {
		owners = noOwners{}
	}
	return &Router{owners: owners, shared: shared, ids: ids, set: set}
}

// Instant returns the instant to decide at. It returns an error if this instance's clock is beyond the tolerance.
func (r *Router) Instant() (store.Instant, error) { return r.set.Timing.Checked() }

// Changed drops the remembered denials and the state of key.
func (r *Router) Changed(key store.Key) { r.shared.Changed(key) }

// LastReset returns the latest reset of key that this instance has seen; 0: none.
func (r *Router) LastReset(key store.Key) store.Instant { return r.shared.LastReset(key) }

// Run does the background work until ctx ends, and then finishes it.
func (r *Router) Run(ctx context.Context) { r.shared.Run(ctx) }

// Decide has c decided or done by the owner of its key, by the owner's clock, and fills in c's decision and error. After an
// attempt that certainly did nothing, it asks the present owner again.
func (r *Router) Decide(ctx context.Context, c *demand.Charge) {
	if r.shared.Denials.Recall(c) {
		return
	}
	ctx, cancel := clock.Within(ctx, r.set.StoreTimeout)
	defer cancel()
	for {
		place, err := r.owners.Place(ctx, c.Key)
		if err != nil {
			c.Err = failureOf(c, fmt.Errorf("%w: %w", errUnreached, err))
			return
		}
		if c.Owner, c.View = place.Owner, place.View; c.Owner == nil {
			c.Err = r.underTerm(ctx, c, place.Term)
		} else {
			c.Err = r.byPeer(ctx, c)
		}
		switch {
		case c.Err == nil:
			return
		case r.mayAskAgain(ctx, c):
		case !demand.IsUndone(c.Err):
			c.Err = failureOf(c, c.Err)
			return
		default:
			if late := clock.Pause(ctx, owner.Pause); late != nil {
				c.Err = failureOf(c, fmt.Errorf("%w: %w: %w", errUnreached, c.Err, late))
				return
			}
		}
	}
}

// errUnreached means that no owner of a key could be asked in time, so that certainly nothing was done.
var errUnreached = fmt.Errorf("%w: the owner of the key can't be reached", store.ErrNotStored)

// failureOf returns err as a StoreError, which says whether c may have been recorded. It returns nil, a StoreError and a
// DatedError as they are.
func failureOf(c *demand.Charge, err error) error {
	_, failed := errors.AsType[*count.StoreError](err)
	switch {
	case err == nil, failed, demand.TooEarly(err):
		return err
	case errors.Is(err, store.ErrNotStored), c.Op == count.OpCheck:
		return &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
	}
	return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Unavailable(err)}
}

// byPeer has c decided or done by c.Owner. Errors are those of Peer.Decide. It sends the text of c's definition only if the
// peer does not know it: most instances have the same definitions.
func (r *Router) byPeer(ctx context.Context, c *demand.Charge) error {
	mark, began := r.shared.Denials.Since(c.Key), time.Now()
	c.Definition = &c.Plan.Definition
	err := c.Owner.Decide(ctx, c)
	if errors.Is(err, owner.ErrUndefined) {
		full := c.Plan.Definition
		full.Text = c.Plan.Text()
		c.Definition = &full
		err = c.Owner.Decide(ctx, c)
	}
	switch {
	case !c.Decides():
		r.Changed(c.Key)
	case err == nil:
		r.shared.Denials.PutAnswer(c, began, mark)
	}
	return err
}

// DecideForPeer decides or does c, which another instance handed on.
func (r *Router) DecideForPeer(ctx context.Context, c *demand.Charge) error {
	if c.Op == owner.OpCommit || c.Op == owner.OpAbort {
		return r.end(ctx, c)
	}
	term, err := r.owners.PlaceFor(ctx, c.Key, c.View)
	if err != nil {
		return err
	}
	err = r.underTerm(ctx, c, term)
	if err == nil && c.Decides() && !c.Decision.WouldAllow {
		c.Steady = r.steadyFor(&c.Target, term)
	}
	return err
}

// underTerm decides or does c under term, which it leaves. It admits c only if term has not ended by then or, under
// policy.GuaranteeLocal, was verified shortly before.
func (r *Router) underTerm(ctx context.Context, c *demand.Charge, term owner.Term) error {
	if c.Op == owner.OpGiveBack {
		return r.giveBackUnder(ctx, c, term)
	}
	defer term.Leave()
	if c.Op == owner.OpReset || c.Op == owner.OpSettle {
		return r.replaceUnder(ctx, c, term)
	}
	now, err := r.set.Timing.Checked()
	if err != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	if c.ID != (store.EventID{}) && now.Sub(c.ID.Instant()) > r.set.StoreTimeout+r.set.Timing.Slack() {
		return &demand.DatedError{} // its caller has given up, and other instances may have removed its event
	}
	c.Term = term
	later := c.Plan.Behind && term.Owned() && c.Hold == 0 // units are admitted before they are written
	if later && c.Op != count.OpCheck {
		if err := r.shared.VerifyTerm(ctx, term); err != nil {
			return &count.StoreError{Recorded: count.RecordedNo, Err: store.Unavailable(err)}
		}
	}
	c.Err = nil
	r.shared.Decide(ctx, c, now)
	if c.Err == nil && c.Decision.Recorded == count.RecordedYes && !c.Plan.ByCell && !later {
		return verify(ctx, term)
	}
	return c.Err
}

// verify repeats term.Verify until that says whether term has ended. The error is a StoreError.
func verify(ctx context.Context, term owner.Term) error {
	for {
		err := term.Verify(ctx)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, owner.ErrTermEnded) || clock.Pause(ctx, owner.Pause) != nil:
			return &count.StoreError{Recorded: count.RecordedUnknown, Err: store.Unavailable(err)}
		}
	}
}

// steadyFor returns the time for which a denial of t, decided under term, remains true; 0 if that is unknown.
func (r *Router) steadyFor(t *demand.Target, term owner.Term) time.Duration {
	now, err := r.set.Timing.Checked()
	if err != nil || t.Plan.Cell {
		return 0
	}
	return r.shared.SteadyFor(t, term, now)
}

// noOwners is the Owners of an engine without owners, in which every instance decides for every key, and is also the term of
// these decisions.
type noOwners struct{}

func (e noOwners) Place(context.Context, store.Key) (demand.Place, error) {
	return demand.Place{Term: e}, nil
}

func (noOwners) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) {
	return nil, owner.ErrRefused
}

func (noOwners) Owned() bool                         { return false }
func (noOwners) Began() time.Time                    { return time.Time{} }
func (noOwners) Verified() time.Time                 { return time.Time{} }
func (noOwners) Verify(context.Context) error        { return nil }
func (noOwners) IsNew(store.Key, time.Duration) bool { return false }
func (noOwners) Note(store.Key, time.Duration) error { return nil }
func (noOwners) Leave()                              {}
