package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// underKey returns a take of a unit under an idempotency key.
func underKey(key string) *limiter.Call {
	return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "log", Identifier: "id"}}, IdempotencyKey: key}
}

// ofLogs returns how many reads and writes of logs the store was asked for.
func (f *fakeStore) ofLogs() (reads, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.reads {
		if len(f.reads[i].Logs) > 0 {
			reads++
		}
	}
	for i := range f.writes {
		if len(f.writes[i].Logs) > 0 {
			writes++
		}
	}
	return reads, writes
}

// usedFor holds that e counts so many units of the log.
func usedFor(t *testing.T, what string, e *limiter.Engine, want int64) {
	t.Helper()
	if d, err := e.Check(t.Context(), limiter.Demand{Policy: "log", Identifier: "id"}); err != nil || d.Used != want {
		t.Errorf("%s counts %d units, %v; want %d", what, d.Used, err, want)
	}
}

// TestOwnersDecideClaimedTakes holds that an owner decides takes under idempotency keys from memory, and writes a row for
// each that it admits.
func TestOwnersDecideClaimedTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, link := newFakeStore(), new(toOwner)
		owns := ownerOf(t, s, ownsAll(), limiter.Options{}, logOf(4))
		link.engine = owns
		asks := ownerOf(t, s, &owners{other: link}, limiter.Options{}, logOf(4))
		if ok, err := takeOne(t.Context(), owns); !ok {
			t.Fatal(err)
		}
		reads, writes := s.ofLogs()
		for i, e := range []*limiter.Engine{asks, owns, asks, asks, owns} {
			if a, err := e.Do(t.Context(), underKey(fmt.Sprint(i))); err != nil || a.Allowed != (i < 3) || a.Replayed {
				t.Errorf("call %d: %+v, %v", i, a.Decision, err)
			}
		}
		if a := mustDo(t, owns, *underKey("0")); !a.Replayed {
			t.Error("a call counts again under its key")
		}
		if r, w := s.ofLogs(); r != reads || w != writes+3 {
			t.Errorf("%d reads and %d writes of a log, want 0 and 3", r-reads, w-writes)
		}
		usedFor(t, "the owner", owns, 4)
	})
}

// TestClaimedTakesOfUnknownKeysAreReadFirst holds that an owner reads a key that it has not in memory before it writes a claimed
// event, whose id would be of no use once it is removed.
func TestClaimedTakesOfUnknownKeysAreReadFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		counting := limiter.New(s, nil)
		must(t, counting.SetPolicies([]policy.Policy{logOf(1)}))
		if ok, err := takeOne(t.Context(), counting); !ok {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		owns := ownerOf(t, s, ownsAll(), limiter.Options{}, logOf(1))
		reads, writes := s.ofLogs()
		if a := mustDo(t, owns, *underKey("k")); a.Allowed {
			t.Error("admitted, limit 1")
		}
		if r, w := s.ofLogs(); r != reads+1 || w != writes {
			t.Errorf("%d reads and %d writes of the log, want a read", r-reads, w-writes)
		}
	})
}

// lossy is an owner whose answer to the first take is lost. If late, the take is lost, too, and can be sent later.
type lossy struct {
	*toOwner
	late bool
	lost demand.Charge
}

func (l *lossy) Decide(ctx context.Context, c *demand.Charge) error {
	if c.Op != count.OpTake || l.lost.Op != "" {
		return l.toOwner.Decide(ctx, c)
	}
	if l.lost = *c; !l.late {
		_ = l.toOwner.Decide(ctx, c)
	}
	return store.ErrUnavailable
}

// TestTakeoverRemovesWhatTheOwnerKnows holds that a claimed take is decided anew once its event is removed from the owner's
// memory and from the store, and that the owner refuses the event if it arrives after that.
func TestTakeoverRemovesWhatTheOwnerKnows(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFakeStore()
			link := &lossy{toOwner: new(toOwner), late: late}
			owns := ownerOf(t, s, ownsAll(), limiter.Options{ClockTolerance: tolerance}, logOf(2))
			link.engine = owns
			asks := ownerOf(t, s, &owners{other: link}, limiter.Options{ClockTolerance: tolerance}, logOf(2))
			usedFor(t, "the owner", owns, 0)
			if _, err := asks.Do(t.Context(), underKey("k")); err == nil {
				t.Fatal("the answer was not lost")
			}
			time.Sleep(5 * time.Second)
			if a := mustDo(t, asks, *underKey("k")); !a.Allowed || a.Replayed {
				t.Errorf("taken over: replayed %t, %+v", a.Replayed, a.Decision)
			}
			if err := handOn(t.Context(), owns, &link.lost); !demand.TooEarly(err) {
				t.Errorf("after its removal the take is decided: %v", err)
			}
			usedFor(t, "the owner", owns, 1)
			usedFor(t, "the store", ownerOf(t, s, ownsAll(), limiter.Options{}, logOf(2)), 1)
		})
	}
}

// TestClaimedTakeAfterAReset holds that a claimed take which the owner refuses, as its date is not after a reset that the asker
// has not heard of, is claimed anew with a later date, at once.
func TestClaimedTakeAfterAReset(t *testing.T) {
	for _, warm := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, link := newFakeStore(), new(toOwner)
			owns := ownerOf(t, s, ownsAll(), limiter.Options{ClockTolerance: tolerance}, logOf(1))
			link.engine = owns
			asks := ownerOf(t, s, &owners{other: link}, limiter.Options{ClockTolerance: tolerance}, logOf(1))
			must(t, owns.Reset(t.Context(), "log", "id"))
			if warm {
				usedFor(t, "the owner", owns, 0)
			}
			if a := mustDo(t, asks, *underKey("k")); !a.Allowed {
				t.Errorf("denied after a reset: %+v", a.Decision)
			}
			if asked := link.asked.Load(); asked != 2 {
				t.Errorf("the owner was asked %d times, want 2", asked)
			}
			usedFor(t, "the owner", owns, 1)
		})
	}
}

// TestClaimedTakeThatIsPreparedAgain holds that a claimed take whose unit is aborted, as its call waits for another one, is
// prepared again under another id: the store never shows an event again that was removed.
func TestClaimedTakeThatIsPreparedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, oneLimit("first", "sliding-log", 1), oneLimit("other", "sliding-log", 5), oneLimit("none", "sliding-log", 0))
		first, none := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "none", 0)
		key, err := r.engines[0].KeyOf("first", first)
		must(t, err)
		var other keys.Identifier
		for i := 0; ; i++ { // a later key
			other = r.ownedBy(t, 1, "other", i)
			if later, err := r.engines[0].KeyOf("other", other); err != nil || later.Compare(key) > 0 {
				must(t, err)
				break
			}
		}
		r.meet = func(c *demand.Charge) (time.Duration, bool) {
			if c.Definition != nil && c.Definition.Policy == "none" {
				return 100 * time.Millisecond, false
			}
			return time.Millisecond, false
		}
		one := func(policy string, id keys.Identifier) limiter.Demand {
			return limiter.Demand{Policy: policy, Identifier: id}
		}
		var both sync.WaitGroup
		both.Go(func() { // it has the first key for a while
			if a, err := r.engines[0].Do(t.Context(), callOf(one("first", first), one("none", none))); err != nil || a.Allowed {
				t.Errorf("a call of which a demand has no room: %+v, %v", a.Decision, err)
			}
		})
		time.Sleep(20 * time.Millisecond)
		both.Go(func() {
			call := callOf(one("first", first), one("other", other))
			call.IdempotencyKey = "k"
			if a, err := r.engines[0].Do(t.Context(), call); err != nil || !a.Allowed {
				t.Errorf("the call that waits: %+v, %v", a.Decision, err)
			}
		})
		both.Wait()
		for policy, id := range map[string]keys.Identifier{"first": first, "other": other} {
			if used := r.usedOf(t, policy, id); used != 1 {
				t.Errorf("%s: the store has %d units, want 1", policy, used)
			}
		}
	})
}

// TestClaimedTakeThatWasPlacedInVain holds that a claimed take which was written and taken back, and depends on another call,
// is not written again under its id.
func TestClaimedTakeThatWasPlacedInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, oneLimit("first", "sliding-log", 2), oneLimit("none", "sliding-log", 0))
		first, none := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "none", 0)
		counting := limiter.New(r.store, nil)
		must(t, counting.SetPolicies([]policy.Policy{oneLimit("first", "sliding-log", 2)}))
		one := limiter.Demand{Policy: "first", Identifier: first}
		if d, err := counting.Take(t.Context(), one); err != nil || !d.Allowed { // so that the owner can't keep what it reads yet
			t.Fatal(d, err)
		}
		r.meet = func(c *demand.Charge) (time.Duration, bool) {
			if c.Definition != nil && c.Definition.Policy == "none" {
				return 100 * time.Millisecond, false
			}
			return time.Millisecond, false
		}
		var both sync.WaitGroup
		both.Go(func() {
			if a, err := r.engines[0].Do(t.Context(), callOf(one, limiter.Demand{Policy: "none", Identifier: none})); err != nil || a.Allowed {
				t.Errorf("a call of which a demand has no room: %+v, %v", a.Decision, err)
			}
		})
		time.Sleep(20 * time.Millisecond)
		call := callOf(one)
		call.IdempotencyKey = "k"
		if a, err := r.engines[0].Do(t.Context(), call); err != nil || !a.Allowed {
			t.Errorf("the call that waits: %+v, %v", a.Decision, err)
		}
		both.Wait()
		if used := r.usedOf(t, "first", first); used != 2 {
			t.Errorf("the store has %d units, want 2", used)
		}
	})
}

// TestClaimIsKeptUntilItsEventIsRemoved holds that a call under an idempotency key is not decided anew while an event of a
// denied attempt, whose removal failed, may be stored.
func TestClaimIsKeptUntilItsEventIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		e := ownerOf(t, s, &owners{term: everyones{}}, limiter.Options{}, logOf(1))
		other := ownerOf(t, s, &owners{term: everyones{}}, limiter.Options{}, logOf(1))
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Remove) > 0 {
					return store.ErrUnavailable
				}
				return nil
			}
		})
		if ok, err := takeOne(t.Context(), other); !ok {
			t.Fatal(err)
		}
		a, err := e.Do(t.Context(), underKey("k"))
		if err != nil || a.Allowed || a.Recorded != count.RecordedUnknown {
			t.Errorf("an event whose removal failed: %+v, %v", a.Decision, err)
		}
		var failed *count.StoreError
		if _, err := other.Do(t.Context(), underKey("k")); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("the call is decided anew: %v", err)
		}
	})
}
