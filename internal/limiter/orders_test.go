package limiter_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// inOwnersMemory returns policies of each kind that an owner keeps in memory, with this limit.
func inOwnersMemory(limit int64) (all []policy.Policy) {
	for _, algorithm := range writtenBehind() {
		all = append(all, inMemory(algorithm, limit, time.Hour))
	}
	for _, algorithm := range writtenFirst() {
		all = append(all, policyOf(algorithm, limit, time.Hour))
	}
	return append(all, inRows("fixed-window", limit, time.Hour))
}

// TestOwnerForgetsWhatIsReset resets a full key by another instance than its owner, and holds that the owner has room for it
// at once, before it hears of the reset.
func TestOwnerForgetsWhatIsReset(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, shared, &owners{term: &tenancy{}}, limiter.Options{}, p)
			link.engine = owns
			asks := ownerOf(t, shared, &owners{other: link}, limiter.Options{}, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			for range 3 { // it may be that a reset comes before anything else
				must(t, asks.Reset(t.Context(), p.Name, "id"))
				for i, want := range []bool{true, true, false} {
					if d, err := owns.Take(t.Context(), of); err != nil || d.Allowed != want {
						t.Errorf("take %d: allowed %t, %v; want %t", i, d.Allowed, err, want)
					}
				}
			}
		})
	}
}

// TestNewOwnerForgetsWhatItRemembers resets a full key that an instance remembers, as one that asked the owner or owned the
// key before, and holds that the instance has room for it once it owns the key, before it hears of the reset.
func TestNewOwnerForgetsWhatItRemembers(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		for _, earlier := range []string{"asker", "owner"} {
			bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee)+"/"+earlier, func(t *testing.T) {
				shared, toFirst, toNext := newFakeStore(), new(toOwner), new(toOwner)
				first := ownerOf(t, shared, ownsAll(), limiter.Options{}, p)
				placed := ownsAll()
				if toFirst.engine = first; earlier == "asker" {
					placed = &owners{other: toFirst}
				}
				next := ownerOf(t, shared, placed, limiter.Options{}, p)
				toNext.engine = next
				asks := ownerOf(t, shared, &owners{other: toNext}, limiter.Options{}, p)

				of := limiter.Demand{Policy: p.Name, Identifier: "id"}
				for range 2 {
					if d, err := first.Take(t.Context(), of); err != nil || !d.Allowed {
						t.Fatalf("allowed %t, %v", d.Allowed, err)
					}
				}
				first.Flush(t.Context())
				if d, err := next.Check(t.Context(), of); err != nil || d.Allowed {
					t.Fatalf("a full key: allowed %t, %v", d.Allowed, err)
				}
				must(t, first.Reset(t.Context(), p.Name, "id"))
				placed.other, placed.term = nil, &sole{began: time.Now()}
				if d, err := asks.Take(t.Context(), of); err != nil || !d.Allowed {
					t.Errorf("allowed %t, %v", d.Allowed, err)
				}
			})
		}
	}
}

// gone is an owner that can't be reached once, has moved once, and then is there.
type gone struct {
	*toOwner
	asked int
}

func (g *gone) Decide(ctx context.Context, c *demand.Charge) error {
	switch g.asked++; g.asked {
	case 1:
		return store.ErrNotStored
	case 2:
		return owner.ErrRefused
	}
	return g.toOwner.Decide(ctx, c)
}

// TestResetIsSentAgainIfSurelyUndone holds that a reset which did not reach the owner of its key reaches the next one.
func TestResetIsSentAgainIfSurelyUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, link := embedded.New(nil), new(toOwner)
		owns := ownerOf(t, &fakeStore{Store: counts}, ownsAll(), limiter.Options{}, logOf(1))
		link.engine = owns
		other := &gone{toOwner: link}
		asks := ownerOf(t, &fakeStore{Store: counts}, &owners{other: other}, limiter.Options{}, logOf(1))
		if ok, err := takeOne(t.Context(), owns); !ok {
			t.Fatal(err)
		}
		must(t, asks.Reset(t.Context(), "log", "id"))
		if ok, err := takeOne(t.Context(), owns); !ok || other.asked != 3 {
			t.Errorf("after a reset that was asked for %d times, a take is admitted: %t, %v", other.asked, ok, err)
		}
	})
}

// TestResetKeysAreNotNew holds that an owner that resets a key that is new to it dates further units after the reset: the
// next owner would miss units with earlier dates.
func TestResetKeysAreNotNew(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, opts := newFakeStore(), limiter.Options{ClockTolerance: time.Second}
			first := ownerOf(t, shared, &owners{term: &tenancy{}}, opts, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			must(t, first.Reset(t.Context(), p.Name, "id"))
			for range 2 {
				if d, err := first.Take(t.Context(), of); err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
			}
			first.Flush(t.Context())
			next := ownerOf(t, shared, ownsAll(), opts, p)
			if d, err := next.Take(t.Context(), of); err != nil || d.Allowed {
				t.Errorf("of two units, the next owner knows %d, %v", d.Used, err)
			}
		})
	}
}

// takesInTurn holds which takes of e are allowed, one after the other.
func takesInTurn(t *testing.T, e *limiter.Engine, of limiter.Demand, want ...bool) (receipts []string) {
	t.Helper()
	for i, want := range want {
		a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{of}})
		if err != nil || a.Allowed != want {
			t.Fatalf("take %d: allowed %t, %v; want %t", i, a.Allowed, err, want)
		}
		receipts = append(receipts, a.Receipt)
	}
	return receipts
}

// TestOwnerForgetsWhatIsGivenBack refunds units by another instance than their owner, and holds that the owner has room for
// them at once, before it hears of that, and for no more, however often they are refunded.
func TestOwnerForgetsWhatIsGivenBack(t *testing.T) {
	for _, p := range inOwnersMemory(2) {
		bubble(t, p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
			shared, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, shared, &owners{term: &tenancy{}}, limiter.Options{}, p)
			link.engine = owns
			running(t, owns)
			asks := ownerOf(t, shared, &owners{other: link}, limiter.Options{}, p)
			of := limiter.Demand{Policy: p.Name, Identifier: "id"}
			receipts := takesInTurn(t, asks, of, true, true)
			takesInTurn(t, owns, of, false)
			for _, receipt := range receipts {
				must(t, asks.Refund(t.Context(), receipt))
				_ = asks.Refund(t.Context(), receipt)
				takesInTurn(t, owns, of, true, false)
				time.Sleep(2 * time.Second) // until sums are subtracted from
				takesInTurn(t, owns, of, false)
			}
		})
	}
}

// TestRefundIsToldOnceItIsStored holds that no instance gets the news of a refund, and reads the key, before the store has
// the refund.
func TestRefundIsToldOnceItIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed, shared, link := newFakeFeed(), newFakeStore(), new(toOwner)
		opts := limiter.Options{Feed: feed}
		link.engine = ownerOf(t, shared, ownsAll(), opts, logOf(1))
		asks := ownerOf(t, shared, &owners{other: link}, opts, logOf(1))
		receipt := takesInTurn(t, asks, limiter.Demand{Policy: "log", Identifier: "id"}, true)[0]
		told := func() int {
			feed.mu.Lock()
			defer feed.mu.Unlock()
			return len(feed.published)
		}
		removed := false
		shared.set(func() {
			shared.onWrite = func(w *store.Write) error {
				if len(w.Remove) > 0 {
					if removed = true; told() > 0 {
						t.Error("the refund is told before it is stored")
					}
				}
				return nil
			}
		})
		must(t, asks.Refund(t.Context(), receipt))
		if !removed || told() != 1 {
			t.Errorf("the unit is removed: %t, told %d times, want once", removed, told())
		}
	})
}

// unsure is an owner that decides calls, and loses the answers to some, or is not reached by them.
type unsure struct {
	*toOwner
	mu              sync.Mutex
	lost, unreached count.Op
}

func (u *unsure) set(lost, unreached count.Op) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lost, u.unreached = lost, unreached
}

func (u *unsure) Decide(ctx context.Context, c *demand.Charge) error {
	u.mu.Lock()
	lost, unreached := u.lost, u.unreached
	u.mu.Unlock()
	if c.Op == unreached {
		return store.ErrNotStored
	}
	err := u.toOwner.Decide(ctx, c)
	if c.Op == lost {
		return fmt.Errorf("%w: the answer is lost", store.ErrUnavailable)
	}
	return err
}

// TestRefundIsMadeOnce holds that a refund without an answer is not sent again, because sums do not show whether it was made,
// and that a refund that certainly did not reach the owner is made nevertheless: by the instance that was asked, or later by
// the owner if the key is written behind.
func TestRefundIsMadeOnce(t *testing.T) {
	for _, p := range inOwnersMemory(3) {
		for _, what := range []string{"lost", "unreached"} {
			bubble(t, what+"/"+p.Limits[0].Algorithm+"/"+string(p.Guarantee), func(t *testing.T) {
				feed, link := embedded.New(nil), &unsure{toOwner: new(toOwner)}
				shared, opts := &fakeStore{Store: feed}, limiter.Options{Feed: feed}
				owns := ownerOf(t, shared, &owners{term: &tenancy{}}, opts, p)
				link.engine = owns
				asks := ownerOf(t, shared, &owners{other: link}, opts, p)
				running(t, owns)
				running(t, asks)
				of := limiter.Demand{Policy: p.Name, Identifier: "id"}
				receipts := takesInTurn(t, asks, of, true, true, true)
				if what == "lost" {
					link.set(owner.OpGiveBack, "")
				} else {
					link.set("", owner.OpGiveBack)
				}
				err := asks.Refund(t.Context(), receipts[0])
				later := p.Guarantee == policy.GuaranteeLocal || p.Limits[0].Algorithm == "concurrent"
				if made := what == "unreached" && !later; made != (err == nil) {
					t.Errorf("a refund whose owner is silent has the error %v", err)
				}
				link.set("", "")
				time.Sleep(5 * time.Second)
				takesInTurn(t, owns, of, true, false)
			})
		}
	}
}

// TestSettledAfterItsHoldIsCounted settles a reservation in time, but the owner of its key gets to it once the hold is
// over: the unit counts all the same.
func TestSettledAfterItsHoldIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, link, opts := newFakeStore(), new(toOwner), limiter.Options{StoreTimeout: 5 * time.Second}
		owns := ownerOf(t, shared, &owners{term: &tenancy{}}, opts, logOf(3))
		link.engine = owns
		others := &owners{other: link}
		asks := ownerOf(t, shared, others, opts, logOf(3))
		of := limiter.Demand{Policy: "log", Identifier: "id"}
		held := mustDo(t, asks, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{of}, Reserve: time.Minute})
		time.Sleep(time.Minute - 50*time.Millisecond)
		late := make(chan struct{})
		others.mu.Lock()
		others.hold = late
		others.mu.Unlock()
		var settling sync.WaitGroup
		settling.Go(func() {
			mustDo(t, asks, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{of}, Reservation: held.Reservation})
		})
		time.Sleep(4 * time.Second)
		takesInTurn(t, owns, of, true, true)
		close(late)
		settling.Wait()
		takesInTurn(t, owns, of, false)
	})
}
