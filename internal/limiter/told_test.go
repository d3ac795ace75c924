package limiter_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
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

// toOwner hands calls on to another engine, and counts them.
type toOwner struct {
	engine *limiter.Engine
	asked  atomic.Int64
	after  func()      // is called before an answer is told; nil: nothing is
	cut    atomic.Bool // it is not reached
}

func (o *toOwner) Decide(ctx context.Context, c *demand.Charge) error {
	o.asked.Add(1)
	if o.cut.Load() {
		return errors.Join(store.ErrUnavailable, store.ErrNotStored)
	}
	if o.after != nil {
		defer o.after()
	}
	return handOn(ctx, o.engine, c)
}

func (o *toOwner) Tell(c *demand.Charge) {
	_ = handOn(context.Background(), o.engine, c)
}

// askerOf returns an engine that asks another one, which owns all keys, and hears of changes as it does.
func askerOf(t *testing.T, policy policy.Policy) (asks, owns *limiter.Engine, link *toOwner) {
	t.Helper()
	feed := embedded.New(nil)
	store := &fakeStore{Store: feed}
	link = new(toOwner)
	owns = ownerOf(t, store, ownsAll(), limiter.Options{Feed: feed}, policy)
	link.engine = owns
	asks = ownerOf(t, store, &owners{other: link}, limiter.Options{Feed: feed}, policy)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = asks.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return asks, owns, link
}

// TestOwnersAreAskedOnceOfFullKeys checks that an instance denies a caller that does not stop by itself, and answers
// the same as the owner.
func TestOwnersAreAskedOnceOfFullKeys(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail"} {
		synctest.Test(t, func(t *testing.T) {
			asks, owns, link := askerOf(t, policyOf(algorithm, 3, time.Hour))
			for range 3 {
				mustTake(t, asks)
			}
			if d := mustTake(t, asks); d.Allowed {
				t.Fatalf("%s: the fourth of three is allowed", algorithm)
			}
			asked := link.asked.Load()
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				d, want := mustTake(t, asks), mustTake(t, owns)
				if d.Allowed || d.WouldAllow || d.Recorded != count.RecordedNo || d.Verdict != want.Verdict {
					t.Fatalf("%s: %+v, the owner says %+v", algorithm, d.Verdict, want.Verdict)
				}
			}
			if n := link.asked.Load() - asked; n > 1 {
				t.Errorf("%s: the owner was asked %d times of a key that is full", algorithm, n)
			}
			time.Sleep(11 * time.Second)
			asked = link.asked.Load()
			mustTake(t, asks)
			if link.asked.Load() == asked {
				t.Errorf("%s: a denial was remembered for longer than ten seconds", algorithm)
			}
		})
	}
}

// TestToldDenialEndsWithWhatItRestsOn holds that an owner's remembered denial ends once there is room again: after its time,
// after a reset, or for another cost.
func TestToldDenialEndsWithWhatItRestsOn(t *testing.T) {
	t.Run("time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			asks, _, _ := askerOf(t, policyOf("sliding-log", 1, 3*time.Second))
			mustTake(t, asks)
			if d := mustTake(t, asks); d.Allowed || d.RetryAfter > 3*time.Second+time.Second {
				t.Fatalf("%+v", d.Verdict)
			}
			d := mustTake(t, asks)
			time.Sleep(d.RetryAfter)
			if d := mustTake(t, asks); !d.Allowed {
				t.Errorf("denied once the wait that it was told is over: %+v", d.Verdict)
			}
		})
	})
	t.Run("reset", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			policy := policyOf("sliding-log", 1, time.Hour)
			asks, _, _ := askerOf(t, policy)
			mustTake(t, asks)
			mustTake(t, asks)
			if err := asks.Reset(t.Context(), policy.Name, somebody.Identifier); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if d := mustTake(t, asks); !d.Allowed {
				t.Errorf("denied after a reset: %+v", d.Verdict)
			}
		})
	})
	t.Run("records are counted", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			asks, owns, _ := askerOf(t, policyOf("sliding-log", 1, time.Hour))
			mustTake(t, asks)
			mustTake(t, asks)
			if _, err := asks.Record(t.Context(), somebody); err != nil {
				t.Fatal(err)
			}
			if d := mustTake(t, owns); d.Used != 2 {
				t.Errorf("%d used, want 2: a record counts though the key is full", d.Used)
			}
		})
	})
}

// newcomers is the term of an owner that knows which keys are new.
type newcomers struct {
	sole
	mu   sync.Mutex
	seen map[store.Key]bool
	over error // that Note returns
}

func (n *newcomers) IsNew(key store.Key, _ time.Duration) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.seen[key]
}

func (n *newcomers) Note(key store.Key, _ time.Duration) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen[key] = true
	return n.over
}

// TestNewKeysAreNotRead checks that an owner that knows that nothing is counted for a key writes admitted units, reads
// nothing, and denies the rest; and that it reads again what it has forgotten.
func TestNewKeysAreNotRead(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-tail"} {
		store, term := newFakeStore(), &newcomers{seen: make(map[store.Key]bool)}
		policy := policyOf(algorithm, 2, time.Hour)
		e := ownerOf(t, store, &owners{term: term}, limiter.Options{}, policy)
		for i, want := range []bool{true, true, false, false} {
			if d := mustTake(t, e); d.Allowed != want {
				t.Errorf("%s: take %d is allowed: %t, want %t", algorithm, i, d.Allowed, want)
			}
		}
		if len(store.reads) > 0 || len(store.writes) != 2 {
			t.Errorf("%s: %d reads and %d writes, want 0 and 2", algorithm, len(store.reads), len(store.writes))
		}
		another := ownerOf(t, store, &owners{term: term}, limiter.Options{}, policy) // which remembers nothing
		if d := mustTake(t, another); d.Allowed || len(store.reads) == 0 {
			t.Errorf("%s: a key that something was counted for: allowed %t by %d reads", algorithm, d.Allowed, len(store.reads))
		}
	}
}

// TestNothingIsCountedThatTheNextOwnerMayNotKnowOf ends a term between the decision and the write.
func TestNothingIsCountedThatTheNextOwnerMayNotKnowOf(t *testing.T) {
	store, term := newFakeStore(), &newcomers{seen: make(map[store.Key]bool), over: owner.ErrTermEnded}
	for _, known := range []bool{true, false} {
		if !known { // it is to be read
			e := ownerOf(t, store, ownsAll(), limiter.Options{}, policyOf("sliding-log", 2, time.Hour))
			mustTake(t, e)
		}
		before := len(store.writes)
		e := ownerOf(t, store, &owners{term: term}, limiter.Options{}, policyOf("sliding-log", 2, time.Hour))
		_, err := e.Take(t.Context(), somebody)
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedNo || len(store.writes) != before {
			t.Errorf("known %t: error %v and %d writes, want one that says that nothing is recorded", known, err, len(store.writes)-before)
		}
	}
}

// TestKeysOfSeveralDemandsAreNotNew has a call of two keys counted, and asks for one of them a while later.
func TestKeysOfSeveralDemandsAreNotNew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		term := &newcomers{seen: make(map[store.Key]bool)}
		policy := policyOf("sliding-log", 2, time.Hour)
		e := ownerOf(t, newFakeStore(), &owners{term: term}, limiter.Options{}, policy)
		other := somebody
		other.Identifier = "another"
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody, other}}
		if a, err := e.Do(t.Context(), &call); err != nil || !a.Allowed {
			t.Fatal(a, err)
		}
		time.Sleep(time.Minute)
		if d := mustTake(t, e); d.Used != 2 {
			t.Errorf("%d used, want 2", d.Used)
		}
	})
}

// TestDenialToldFromBeforeARefund has a unit given back, and that heard of, after the owner denied and
// before the denial arrives: it is told once, and not remembered.
func TestDenialToldFromBeforeARefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, link, asks, owns := askerAndOwner(t)
		receipt := fillOne(t, asks)
		link.after = func() {
			link.after = nil
			must(t, owns.Refund(context.Background(), receipt))
			time.Sleep(time.Second)
		}
		if d := mustTake(t, asks); d.Allowed {
			t.Fatalf("allowed before the refund: %+v", d.Verdict)
		}
		if d := mustTake(t, asks); !d.Allowed {
			t.Errorf("denied by what was so before the refund: %+v", d.Verdict)
		}
	})
}

// TestRecordShowsInTheNextDenial has an owner read of a key that it is full, and then count a record whose event has a date of
// its own: the next denial includes it.
func TestRecordShowsInTheNextDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, policy := newFakeStore(), policyOf("sliding-log", 3, time.Hour)
		takes(t, toldEngine(t, s, policy), 3)
		time.Sleep(3 * timeout)
		owns := ownerOf(t, s, ownsAll(), limiter.Options{Feed: s.Store.(*embedded.Store), StoreTimeout: timeout}, policy)
		two := somebody
		two.Cost = 2
		if d, err := owns.Take(t.Context(), two); err != nil || d.Allowed || d.Used != 3 {
			t.Fatalf("two beside three of three: %+v, %v", d, err)
		}
		mustDo(t, owns, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"})
		if d := mustTake(t, owns); d.Allowed || d.Used != 4 {
			t.Errorf("%+v, want 4 used", d.Verdict)
		}
	})
}

// TestOwnerReadsBeforeARefund has a unit given back while the owner reads the key: what it read is not
// remembered.
func TestOwnerReadsBeforeARefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _, asks, _ := askerAndOwner(t)
		receipt := fillOne(t, asks)
		policy := policyOf("sliding-log", 1, time.Hour)
		again := ownerOf(t, s, ownsAll(), limiter.Options{StoreTimeout: timeout}, policy) // which has read nothing
		s.set(func() {
			s.afterRead = func(*store.State) error {
				s.set(func() { s.afterRead = nil })
				return again.Refund(context.Background(), receipt)
			}
		})
		if d := mustTake(t, again); d.Allowed {
			t.Fatalf("allowed by what was read before the refund: %+v", d.Verdict)
		}
		if d := mustTake(t, again); !d.Allowed {
			t.Errorf("denied by what was so before the refund: %+v", d.Verdict)
		}
	})
}
