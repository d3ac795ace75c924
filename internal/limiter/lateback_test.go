package limiter_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// trio is three instances over one store: the first one owns all keys, and the others ask it.
type trio struct {
	store   *fakeStore
	engines [3]*limiter.Engine
}

// newTrio returns one; if not owned, all of them decide for all keys.
func newTrio(t *testing.T, p policy.Policy, owned bool) *trio {
	t.Helper()
	feed := embedded.New(nil)
	three := &trio{store: &fakeStore{Store: feed}}
	opts := limiter.Options{Feed: feed, StoreTimeout: timeout, ClockTolerance: tolerance}
	link := new(toOwner)
	for i := range three.engines {
		switch {
		case !owned:
			three.engines[i] = ownerOf(t, three.store, nil, opts, p)
		case i == 0:
			three.engines[i] = ownerOf(t, three.store, ownsAll(), opts, p)
		default:
			three.engines[i] = ownerOf(t, three.store, &owners{other: link}, opts, p)
		}
		running(t, three.engines[i])
	}
	link.engine = three.engines[0]
	return three
}

// giveBacks are the ways in which a unit comes back before its window is over. Each takes the unit by taken, and
// returns what gives it back by another instance; nil: that happens by itself.
func giveBacks() map[string]func(t *testing.T, taken, by *limiter.Engine) (give func() error) {
	call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}
	return map[string]func(t *testing.T, taken, by *limiter.Engine) func() error{
		"refund": func(t *testing.T, taken, by *limiter.Engine) func() error {
			receipt := mustDo(t, taken, call).Receipt
			return func() error { return by.Refund(t.Context(), receipt) }
		},
		"confirmation": func(t *testing.T, taken, by *limiter.Engine) func() error {
			receipt := mustDo(t, taken, call).Receipt
			return func() error { _, err := by.Confirm(t.Context(), receipt); return err }
		},
		"reservation that ends": func(t *testing.T, _, by *limiter.Engine) func() error {
			hold := call
			hold.Op, hold.Reserve = count.OpCheck, 100*time.Millisecond
			if a := mustDo(t, by, hold); !a.Allowed || a.Reservation == "" {
				t.Fatalf("%+v", a)
			}
			return nil
		},
		"reset": func(t *testing.T, taken, by *limiter.Engine) func() error {
			mustDo(t, taken, call)
			return func() error { return by.Reset(context.Background(), somebody.Policy, somebody.Identifier) }
		},
	}
}

// TestRoomIsThereOnceUnitsAreGivenBack fills a key, gives a unit back at once, and asks again and again. Sums are
// subtracted from a store timeout later or up to one and a half, and so long callers are denied. A read before that
// must not deny anybody for longer.
func TestRoomIsThereOnceUnitsAreGivenBack(t *testing.T) {
	const limit = 6
	for _, counting := range []policy.Counting{policy.CountingCounters, policy.CountingRows} {
		for _, how := range []string{"by an owner", "by an owner, local", "by all"} {
			for way, take := range giveBacks() {
				for asked, at := range []string{"the owner", "another instance", "the one that gives back"} {
					bubble(t, string(counting)+" "+how+", "+way+", asking "+at, func(t *testing.T) {
						time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour) // far from an edge
						p := policyOf("fixed-window", limit, time.Hour)
						p.Counting = counting
						if how == "by an owner, local" {
							p.Guarantee = policy.GuaranteeLocal
						}
						if way == "confirmation" {
							p.Limits[0].Until = policy.UntilConfirmed
						}
						three := newTrio(t, p, how != "by all")
						give := take(t, three.engines[1], three.engines[2])
						for i := range limit - 1 {
							if d := mustTake(t, three.engines[i%2]); !d.Allowed {
								t.Fatalf("take %d is denied: %+v", i, d.Verdict)
							}
						}
						time.Sleep(100 * time.Millisecond)
						if give != nil {
							must(t, give())
						}
						roomWithin(t, three.engines[asked], 4*timeout)
					})
				}
			}
		}
	}
}

// roomWithin fails t unless a take of e is allowed within d.
func roomWithin(t *testing.T, e *limiter.Engine, d time.Duration) {
	t.Helper()
	for began := time.Now(); !mustTake(t, e).Allowed; time.Sleep(50 * time.Millisecond) {
		if time.Since(began) > d {
			t.Fatalf("still denied after %s", time.Since(began))
		}
	}
}

// TestRoomIsThereThoughNobodyTellsOfIt has the instance that gives back unable to tell so a second time: the first
// news had the owner take the key's units for provisional.
func TestRoomIsThereThoughNobodyTellsOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := newFakeFeed()
		shared := &fakeStore{Store: feed.Feed.(*embedded.Store)}
		opts := limiter.Options{Feed: feed, StoreTimeout: timeout}
		p, link := policyOf("fixed-window", 1, 24*time.Hour), new(toOwner)
		p.Counting = policy.CountingCounters
		owns := ownerOf(t, shared, ownsAll(), opts, p)
		link.engine = owns
		asks := ownerOf(t, shared, &owners{other: link}, opts, p)
		running(t, owns)
		running(t, asks)
		receipt := mustDo(t, asks, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}).Receipt
		link.cut.Store(true) // so that the one that is asked gives back
		must(t, asks.Refund(t.Context(), receipt))
		feed.set(func() { feed.deaf = true })
		roomWithin(t, owns, 4*timeout)
	})
}

// TestRoomIsThereOnceARemovalSucceeds has the removal of a refunded event fail for some seconds, in which the owner reads
// it again and again: it is told when the event is gone.
func TestRoomIsThereOnceARemovalSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, _, asks, owns := askerAndOwner(t)
		receipt := fillOne(t, asks)
		mustTake(t, owns)
		var failed atomic.Int64
		shared.set(func() {
			shared.onWrite = func(w *store.Write) error {
				if len(w.Remove) > 0 && failed.Add(1) <= 4 {
					return store.ErrUnavailable
				}
				return nil
			}
		})
		if err := asks.Refund(t.Context(), receipt); err == nil {
			t.Fatal("the removal did not fail")
		}
		const tries = timeout + 2*timeout + 4*timeout + 3*timeout // each waits twice as long as the one before, and for a tick
		roomWithin(t, owns, tries+2*timeout)
	})
}

// TestRoomIsThereOnceWhatFailedIsTakenBack has an owner read what it counted itself and did not admit: a unit whose
// write was not answered, until it is taken back.
func TestRoomIsThereOnceWhatFailedIsTakenBack(t *testing.T) {
	for _, p := range []policy.Policy{policyOf("sliding-log", 1, time.Hour), inRows("fixed-window", 1, 24*time.Hour)} {
		bubble(t, p.Limits[0].Algorithm, func(t *testing.T) {
			shared, lost := newFakeStore(), false
			e := ownerOf(t, shared, ownsAll(), limiter.Options{StoreTimeout: timeout}, p)
			running(t, e)
			shared.set(func() {
				shared.onWrite = func(w *store.Write) error {
					if !lost {
						lost = true
						_ = shared.Store.Write(t.Context(), w)
						return store.ErrUnavailable
					}
					return nil
				}
			})
			if _, err := e.Take(t.Context(), somebody); err == nil {
				t.Fatal("the write did not fail")
			}
			roomWithin(t, e, 4*timeout)
		})
	}
}

// TestReadBesideASubtractionIsNotRemembered has an owner read a key while a unit that nobody was admitted for is being
// subtracted.
func TestReadBesideASubtractionIsNotRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := newFakeStore()
		e := ownerOf(t, shared, ownsAll(), limiter.Options{StoreTimeout: timeout}, policyOf("fixed-window", 1, 24*time.Hour))
		running(t, e)
		subtracting := make(chan struct{})
		shared.set(func() {
			shared.afterRead = func(*store.State) error {
				shared.set(func() { shared.afterRead = nil })
				return store.ErrUnavailable
			}
			shared.onWrite = func(w *store.Write) error {
				if len(w.Add) > 0 && w.Add[0].Units < 0 {
					shared.set(func() { shared.onWrite = nil })
					close(subtracting)
					time.Sleep(timeout / 4)
				}
				return nil
			}
		})
		if _, err := e.Take(t.Context(), somebody); err == nil {
			t.Fatal("the read did not fail")
		}
		<-subtracting
		if d := mustTake(t, e); d.Allowed {
			t.Fatalf("allowed while it is not known whether there is room: %+v", d.Verdict)
		}
		roomWithin(t, e, timeout)
	})
}

// TestResetWithoutAnswerEndsWhatIsKnown has a reset stored and its answer lost: it may be, so no instance uses what it
// knew before.
func TestResetWithoutAnswerEndsWhatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fullAsTold(t)
		if !f.knows() {
			t.Fatal("what is known denies nobody: there is nothing to end")
		}
		f.store.set(func() {
			f.store.onWrite = func(w *store.Write) error {
				if w.Reset == 0 {
					return nil
				}
				_ = f.store.Store.Write(t.Context(), w)
				return store.ErrUnavailable
			}
		})
		if err := f.elsewhere.Reset(t.Context(), somebody.Policy, somebody.Identifier); err == nil {
			t.Fatal("the answer was not lost")
		}
		roomWithin(t, f.remembers, 4*timeout)
	})
}
