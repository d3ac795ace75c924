package peer

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// sharedStore can't hold keys still, and takes a while for what it stores.
type sharedStore struct {
	store.Store
	takes time.Duration
}

func (s *sharedStore) Write(ctx context.Context, w *store.Write) error {
	time.Sleep(s.takes)
	return s.Store.Write(ctx, w)
}

func (s *sharedStore) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, s, w, wrote)
}

func (s *sharedStore) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, s, w, q)
}

// lasting is a right that ends when a test says so.
type lasting struct {
	owned bool
	ended error
}

func (l *lasting) Owned() bool                  { return l.owned }
func (l *lasting) Began() time.Time             { return time.Time{} }
func (l *lasting) Verify(context.Context) error { return l.ended }
func (l *lasting) Verified() time.Time          { return time.Time{} }
func (l *lasting) Leave()                       {}

func (l *lasting) IsNew(store.Key, time.Duration) bool { return false }
func (l *lasting) Note(store.Key, time.Duration) error { return nil }

// fixedOwners says of all keys the same: this instance owns them, or owner does.
type fixedOwners struct {
	right, guest *lasting
	owner        owner.Peer
}

func (o *fixedOwners) Place(context.Context, store.Key) (owner.Place, error) {
	if o.owner != nil {
		return owner.Place{Owner: o.owner}, nil
	}
	return owner.Place{Right: o.right}, nil
}

func (o *fixedOwners) PlaceFor(context.Context, store.Key, int64) (owner.Right, error) {
	return o.right, nil
}

func (o *fixedOwners) Guest(context.Context) (owner.Right, error) { return o.guest, nil }

// near is an owner without a network between.
type near struct{ engine *limiter.Engine }

func (n near) Decide(ctx context.Context, call *owner.Call, a *owner.Answer) error {
	return n.engine.DecideForPeer(ctx, call, a)
}

func (n near) Tell(call *owner.Call) {
	_ = n.Decide(context.Background(), call, new(owner.Answer))
}

// pair is the instance that owns all keys, and another one, over one store. A log holds two units.
type pair struct {
	owns, asks           *fixedOwners
	store                *sharedStore // the owner's
	owner, guest, former *limiter.Engine
}

func newPair(t *testing.T) *pair {
	t.Helper()
	counts := embedded.New(nil)
	p := &pair{store: &sharedStore{Store: counts}}
	p.owns = &fixedOwners{right: &lasting{owned: true}, guest: &lasting{}}
	engine := func(store store.Store, o owner.Owners) *limiter.Engine {
		e := limiter.New(store, &limiter.Options{Owners: o})
		pol := policy.Policy{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 2, Window: time.Hour}}}
		if err := e.SetPolicies([]policy.Policy{pol}); err != nil {
			t.Fatal(err)
		}
		return e
	}
	p.owner = engine(p.store, p.owns)
	p.asks = &fixedOwners{guest: &lasting{}, owner: near{p.owner}}
	p.guest = engine(&sharedStore{Store: counts}, p.asks)
	p.former = engine(&sharedStore{Store: counts}, &fixedOwners{right: &lasting{owned: true}})
	return p
}

// takes reports whether e admits a unit. If it reserves the unit, it counts as a guest.
func takes(t *testing.T, e *limiter.Engine, reserves bool) bool {
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "id"}}}
	if reserves {
		call.Op, call.Reserve = count.OpCheck, time.Hour
	}
	a, err := e.Do(t.Context(), &call)
	return err == nil && a.Allowed
}

// admits holds that e admits a unit, or does not.
func admits(t *testing.T, what string, e *limiter.Engine, reserves, want bool) {
	t.Helper()
	if got := takes(t, e, reserves); got != want {
		t.Errorf("%s is admitted: %t, want %t", what, got, want)
	}
}

// TestOwnerKnowsWhatGuestsCount holds that an owner does not go by its memory of a key that somebody
// else has counted for.
func TestOwnerKnowsWhatGuestsCount(t *testing.T) {
	for _, far := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t)
			admits(t, "the owner's first", p.owner, false, true)
			if far {
				admits(t, "another instance's", p.guest, true, true)
			} else {
				admits(t, "the owner's own, as a guest", p.owner, true, true)
			}
			admits(t, "a third", p.owner, false, false)
		})
	}
}

// TestGuestWhoseRightIsOverAdmitsNothing holds that what a guest counted is not admitted where the key
// may have got another owner meanwhile, who does not know of it.
func TestGuestWhoseRightIsOverAdmitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		p.asks.guest.ended = owner.ErrRightEnded
		admits(t, "what a guest counted too late", p.guest, true, false)
	})
}

// TestMemoryBelongsToOneRight holds that an owner which gets a key back reads what others counted.
func TestMemoryBelongsToOneRight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		admits(t, "the owner's first", p.owner, false, true)
		admits(t, "that of whoever owns the key in between", p.former, false, true)
		p.owns.right = &lasting{owned: true}
		admits(t, "a third", p.owner, false, false)
	})
}

// TestOpeningWaitsForWhatIsUnderWay holds that a guest counts only when what the owner admits by its
// memory is stored.
func TestOpeningWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t)
		admits(t, "the owner's first", p.owner, false, true)
		p.store.takes = 200 * time.Millisecond
		var both sync.WaitGroup
		both.Go(func() { admits(t, "the owner's second", p.owner, false, true) })
		synctest.Wait()
		both.Go(func() { admits(t, "a third, of a guest", p.guest, true, false) })
		both.Wait()
	})
}
