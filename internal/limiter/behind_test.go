package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/counted"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// inMemory returns a policy of one limit whose units are admitted from memory and written behind.
func inMemory(algorithm string, limit int64, window time.Duration) policy.Policy {
	p := policyOf(algorithm, limit, window)
	p.Guarantee = policy.GuaranteeLocal
	return p
}

// nextSync waits until every engine of the bubble has synced.
func nextSync() {
	time.Sleep(demand.DefaultSyncInterval)
	synctest.Wait()
}

// takes makes n takes one after the other and returns how many were allowed.
func takes(t testing.TB, e *limiter.Engine, n int) (allowed int) {
	t.Helper()
	for range n {
		if mustTake(t, e).Allowed {
			allowed++
		}
	}
	return allowed
}

// upTo returns a time above 0, and up to most.
func upTo(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(1 + rnd.Int64N(int64(most)))
}

// buckets returns the algorithms that are in cells, conversions among them.
func buckets() []string {
	return slices.DeleteFunc(writtenBehind(), func(name string) bool { return slices.Contains(writtenFirst(), name) })
}

// writtenBehind returns the algorithms that may be decided in memory and written later: all.
func writtenBehind() []string { return policy.Algorithms() }

// tenancy is the term of an owner of all keys, of which nothing was counted before it. It can be told how it ends.
type tenancy struct {
	mu       sync.Mutex
	noted    map[store.Key]bool
	verified time.Time // zero: just now, always
	fails    error     // what Verify says
	ended    error     // what Note says
	asked    int       // how often Verify was
}

func (y *tenancy) Owned() bool      { return true }
func (y *tenancy) Began() time.Time { return time.Time{} }
func (y *tenancy) Leave()           {}

func (y *tenancy) IsNew(key store.Key, _ time.Duration) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return !y.noted[key]
}

func (y *tenancy) Note(key store.Key, _ time.Duration) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.noted == nil {
		y.noted = make(map[store.Key]bool)
	}
	y.noted[key] = true
	return y.ended
}

func (y *tenancy) Verified() time.Time {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.ended != nil {
		return time.Time{}
	}
	if y.verified.IsZero() {
		return time.Now()
	}
	return y.verified
}

func (y *tenancy) Verify(context.Context) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.asked++
	return y.fails
}

func (y *tenancy) set(change func()) {
	y.mu.Lock()
	defer y.mu.Unlock()
	change()
}

// asked is an engine that another one hands calls on to.
type asked struct{ *limiter.Engine }

func (a asked) Decide(ctx context.Context, c *demand.Charge) error {
	return handOn(ctx, a.Engine, c)
}

func (a asked) Tell(c *demand.Charge) {
	_ = handOn(context.Background(), a.Engine, c)
}

// tenant returns an engine that owns all keys under term, and runs.
func tenant(t *testing.T, store store.Store, feed store.Feed, term owner.Term, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	return instanceWith(t, store, &limiter.Options{
		Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil), Owners: &owners{term: term},
	}, policies...)
}

// asker returns an engine that hands calls on to owner, and runs.
func asker(t *testing.T, store store.Store, feed store.Feed, owner *limiter.Engine, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	return instanceWith(t, store, &limiter.Options{
		Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil), Owners: &owners{other: asked{owner}},
	}, policies...)
}

// inStore returns what an engine that is started now finds counted in store.
func inStore(t *testing.T, store store.Store, policy policy.Policy) int64 {
	t.Helper()
	policy.Limits = slices.Clone(policy.Limits)
	policy.Limits[0].Limit = 1000 // what is used is exact up to the limit
	return mustCheck(t, instance(t, store, nil, policy)).Used
}

// TestLocalAsksNobody holds that nothing is waited for, whatever the store takes: a key that is new costs one
// write an interval.
func TestLocalAsksNobody(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			e := tenant(t, store, nil, &tenancy{}, inMemory(algorithm, 8, time.Hour))
			store.set(func() { store.readTakes, store.writeTakes = 100*time.Millisecond, 100*time.Millisecond })
			began := time.Now()
			if allowed := takes(t, e, 5); allowed != 5 {
				t.Errorf("%d are allowed", allowed)
			}
			if reads, writes := store.counts(); reads > 0 || writes > 0 || time.Since(began) > 0 {
				t.Errorf("%d reads and %d writes, and %v, before the answers", reads, writes, time.Since(began))
			}
			nextSync()
			time.Sleep(220 * time.Millisecond)
			if _, writes := store.counts(); writes != 1 || e.Behind().Written != 1 || e.Behind().Waiting != 0 {
				t.Errorf("%d writes, %+v", writes, e.Behind())
			}
			if allowed := takes(t, e, 9); allowed != 3 {
				t.Errorf("%d more of 8", allowed)
			}
			nextSync()
			nextSync()
			time.Sleep(200 * time.Millisecond)
			if _, writes := store.counts(); writes != 2 {
				t.Errorf("%d writes", writes)
			}
			if used := inStore(t, store, inMemory(algorithm, 8, time.Hour)); used != 8 {
				t.Errorf("%d units are in the store, want 8", used)
			}
		})
	}
}

// TestLocalIsDecidedByItsOwner holds that one instance counts, whichever is asked, and what it counts
// is known to the next owner once it is written.
func TestLocalIsDecidedByItsOwner(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			store, policy := newFakeStore(), inMemory(algorithm, 10, time.Hour)
			owner := tenant(t, store, nil, &tenancy{}, policy)
			other := asker(t, store, nil, owner, policy)
			if allowed := takes(t, other, 4) + takes(t, owner, 4); allowed != 8 {
				t.Errorf("%d of 8", allowed)
			}
			if used := mustCheck(t, other).Used; used != 8 {
				t.Errorf("%d used", used)
			}
			owner.Flush(t.Context())
			time.Sleep(2 * time.Second)
			next := tenant(t, store, nil, &sole{}, policy)
			if allowed := takes(t, next, 5); allowed != 2 {
				t.Errorf("%d more of 10", allowed)
			}
		})
	}
}

// TestLocalUnderIdempotencyKeys holds that takes under idempotency keys, which another instance is asked for, are decided
// beside the units that their owner admitted.
func TestLocalUnderIdempotencyKeys(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			store, policy := newFakeStore(), inMemory(algorithm, 5, time.Hour)
			store.writeTakes = 5 * time.Millisecond
			owner := tenant(t, store, nil, &tenancy{}, policy)
			other := asker(t, store, nil, owner, policy)
			keyed := func(e *limiter.Engine, key string) limiter.Answer {
				return mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: key})
			}
			takes(t, owner, 3)
			first := keyed(other, "a")
			if !first.Allowed || first.Used != 4 {
				t.Errorf("%+v", first.Verdict)
			}
			if again := keyed(owner, "a"); !again.Replayed || again.Receipt != first.Receipt {
				t.Errorf("%+v", again)
			}
			if allowed := takes(t, owner, 2); allowed != 1 {
				t.Errorf("%d more of 5", allowed)
			}
			time.Sleep(3 * time.Second)
			if d := keyed(owner, "b"); d.Allowed || d.Used != 5 {
				t.Errorf("%+v", d.Verdict)
			}
		})
	}
}

// TestLocalBesideOthers holds that of several demands all are counted or none, whichever of
// them denies.
func TestLocalBesideOthers(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		for name, limits := range map[string][2]int64{"counted denies": {5, 1}, "local denies": {1, 5}} {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				policies := twoPolicies(limitOf(algorithm, limits[0]), limitOf(algorithm, limits[1]))
				policies[0].Guarantee = policy.GuaranteeLocal
				e := tenant(t, newFakeStore(), nil, &tenancy{}, policies...)
				take := limiter.Call{Op: count.OpTake, Demands: both}
				for i := range 3 {
					if a := mustDo(t, e, take); a.Allowed != (i == 0) {
						t.Errorf("take %d: %+v", i, a)
					}
				}
				time.Sleep(3 * time.Second)
				for _, d := range both {
					if used := usedBy(t, e, d); used != 1 {
						t.Errorf("%s: %d used, want 1", d.Policy, used)
					}
				}
			})
		}
	}
}

// TestLocalIsHeld holds that a reservation counts beside what the owner admits from memory.
func TestLocalIsHeld(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		e := tenant(t, newFakeStore(), nil, &tenancy{}, inMemory("sliding-log", 3, time.Hour))
		takes(t, e, 1)
		held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
		if held.Reservation == "" {
			t.Fatalf("%+v", held)
		}
		time.Sleep(5 * time.Second)
		if allowed := takes(t, e, 3); allowed != 1 {
			t.Errorf("%d more of 3 beside what is held", allowed)
		}
		mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation})
		time.Sleep(time.Minute)
		if used := mustCheck(t, e).Used; used != 3 {
			t.Errorf("%d used", used)
		}
	})
}

// TestLocalReset checks that a reset forgets units that wait to be written, too, and that later ones count.
func TestLocalReset(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		for _, elsewhere := range []bool{false, true} {
			bubble(t, fmt.Sprint(algorithm, ", elsewhere ", elsewhere), func(t *testing.T) {
				store, feed, policy := newFakeStore(), newFakeFeed(), inMemory(algorithm, 5, 24*time.Hour)
				owner := tenant(t, store, feed, &tenancy{}, policy)
				at := owner
				if elsewhere {
					at = asker(t, store, feed, owner, policy)
				}
				takes(t, owner, 5)
				mustReset(t, at)
				if allowed := takes(t, at, 1); allowed != 1 {
					t.Error("denied after the reset")
				}
				time.Sleep(3 * time.Second)
				takes(t, owner, 1)
				nextSync()
				if here, there := mustCheck(t, at).Used, inStore(t, store, policy); here != 2 || there != 2 {
					t.Errorf("%d used, and %d in the store, want 2", here, there)
				}
			})
		}
	}
}

// TestLocalRefund holds that a refund gives back once, before its unit is written and after, on the owner and
// elsewhere.
func TestLocalRefund(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		for _, written := range []bool{false, true} {
			for _, elsewhere := range []bool{false, true} {
				bubble(t, fmt.Sprintf("%s, written %v, elsewhere %v", algorithm, written, elsewhere), func(t *testing.T) {
					store, feed, policy := newFakeStore(), newFakeFeed(), inMemory(algorithm, 3, time.Hour)
					owner := tenant(t, store, feed, &tenancy{}, policy)
					other := asker(t, store, feed, owner, policy)
					takes(t, owner, 2)
					answer := mustDo(t, owner, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
					if written {
						nextSync()
					}
					at := owner
					if elsewhere {
						at = other
					}
					if err := at.Refund(t.Context(), answer.Receipt); err != nil {
						t.Fatal(err)
					}
					time.Sleep(5 * time.Second)
					for _, e := range []*limiter.Engine{owner, other} {
						if used := mustCheck(t, e).Used; used != 2 {
							t.Errorf("%d used, want 2", used)
						}
					}
					if err := other.Refund(t.Context(), answer.Receipt); !errors.Is(err, limiter.ErrNoReceipt) && answer.Release == "" {
						t.Errorf("refunded twice: %v", err)
					}
					if allowed := takes(t, other, 2); allowed != 1 {
						t.Errorf("%d more passed, want 1", allowed)
					}
				})
			}
		}
	}
}

// TestLocalThroughAnOutage holds that an owner admits from memory no longer than an interval and a store
// timeout after the store stopped answering, and that all it admitted is written once, when it answers again.
func TestLocalThroughAnOutage(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		for name, stored := range map[string]bool{"stored": true, "not stored": false} {
			bubble(t, algorithm+", what failed was "+name, func(t *testing.T) {
				s, policy := newFakeStore(), inMemory(algorithm, 100, 30*24*time.Hour)
				e := tenant(t, s, nil, &tenancy{}, policy)
				down := errors.Join(store.ErrUnavailable, errors.New("down"))
				takes(t, e, 1)
				nextSync()
				s.set(func() {
					s.onWrite = func(w *store.Write) error {
						if stored {
							_ = s.Store.Write(t.Context(), w)
						}
						return down
					}
					s.afterRead = func(*store.State) error { return down }
				})
				admitted, began := 1, time.Now()
				for range 30 {
					d, err := e.Take(t.Context(), somebody)
					if err == nil && d.Allowed {
						if admitted++; time.Since(began) > demand.DefaultSyncInterval+timeout {
							t.Errorf("admitted %v after the store stopped answering", time.Since(began))
						}
					}
					time.Sleep(50 * time.Millisecond)
				}
				if admitted < 10 || admitted > 20 {
					t.Errorf("%d are admitted", admitted)
				}
				if lag := e.Behind(); lag.Waiting != 1 || lag.Lag < time.Second || lag.Failed < 4 {
					t.Errorf("%+v in the outage", lag)
				}
				s.set(func() { s.onWrite, s.afterRead = nil, nil })
				time.Sleep(20 * time.Second) // units in doubt, which were not admitted, are taken back
				if lag := e.Behind(); lag.Waiting != 0 || lag.Lag != 0 || lag.Written == 0 {
					t.Errorf("%+v after the outage", lag)
				}
				if got := inStore(t, s, policy); got != int64(admitted) {
					t.Errorf("%d units are in the store, want %d", got, admitted)
				}
			})
		}
	}
}

// TestLocalStopsWithoutAVerifiedTerm holds that an owner which is set out, or can't learn whether it is, admits nothing
// from memory after an interval and a store timeout.
func TestLocalStopsWithoutAVerifiedTerm(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		for name, fails := range map[string]error{"out": owner.ErrTermEnded, "no answer": store.ErrUnavailable} {
			bubble(t, algorithm+", "+name, func(t *testing.T) {
				term := &tenancy{}
				e := tenant(t, newFakeStore(), nil, term, inMemory(algorithm, 100, time.Hour))
				takes(t, e, 1)
				term.set(func() { term.verified, term.fails = time.Now(), fails })
				time.Sleep(demand.DefaultSyncInterval + timeout - time.Millisecond)
				if allowed := takes(t, e, 1); allowed != 1 || term.asked > 0 {
					t.Errorf("a term that held a moment ago is asked for %d times, and %d are admitted", term.asked, allowed)
				}
				time.Sleep(time.Millisecond)
				_, err := e.Take(t.Context(), somebody)
				var failed *count.StoreError
				if !errors.As(err, &failed) || failed.Recorded != count.RecordedNo {
					t.Errorf("the error is %v, want one that says that nothing is recorded", err)
				}
				if used := mustCheck(t, e).Used; used != 2 {
					t.Errorf("%d used, want 2", used)
				}
				term.set(func() { term.fails = nil })
				if allowed := takes(t, e, 1); allowed != 1 {
					t.Error("denied though the term holds")
				}
			})
		}
	}
}

// TestLocalEndsWithItsTerm holds that nothing is admitted which the end of a term may not have found to write.
func TestLocalEndsWithItsTerm(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			term := &tenancy{}
			e := tenant(t, newFakeStore(), nil, term, inMemory(algorithm, 9, time.Hour))
			takes(t, e, 1)
			term.set(func() { term.ended = owner.ErrTermEnded })
			_, err := e.Take(t.Context(), somebody)
			var failed *count.StoreError
			if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
				t.Errorf("the error is %v, want one that says unknown", err)
			}
		})
	}
}

// TestLocalIsWrittenAtAStop checks that units that wait when an engine ends are written then, though it takes several tries.
func TestLocalIsWrittenAtAStop(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p := newFakeStore(), inMemory(algorithm, 4, time.Hour)
			e := limiter.New(s, &limiter.Options{StoreTimeout: timeout, ClockTolerance: tolerance, Owners: &owners{term: &tenancy{}}})
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			stop := runningUntil(t, e)
			takes(t, e, 3)
			failures := 2
			s.set(func() {
				s.onWrite = func(*store.Write) error {
					if failures--; failures >= 0 {
						return errors.Join(store.ErrUnavailable, store.ErrNotStored)
					}
					return nil
				}
			})
			stop()
			if got := inStore(t, s, p); got != 3 {
				t.Errorf("%d units are in the store, want 3", got)
			}
		})
	}
}

// TestLocalStopsInTime holds that a stop ends though the store does not answer.
func TestLocalStopsInTime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes = time.Hour
		e := limiter.New(store, &limiter.Options{StoreTimeout: timeout, Owners: &owners{term: &tenancy{}}})
		if err := e.SetPolicies([]policy.Policy{inMemory("sliding-log", 4, time.Hour)}); err != nil {
			t.Fatal(err)
		}
		stop := runningUntil(t, e)
		takes(t, e, 3)
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		if stop(); time.Since(began) > 3*time.Second {
			t.Errorf("it took %v", time.Since(began))
		}
	})
}

// TestLocalOvershootIsBounded kills owner after owner of a key, and holds that all of them together admit no more than the
// limit and the units that the dead owners had not written: for each, at most the limit, and at most the units that it
// admitted within an interval and two store timeouts.
func TestLocalOvershootIsBounded(t *testing.T) {
	const runs, stretch = 60, demand.DefaultSyncInterval + 2*timeout
	beyond := 0
	for seed := range uint64(runs) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			all := writtenBehind()
			limit := 1 + rnd.Int64N(40)
			policy := inMemory(all[seed%uint64(len(all))], limit, 31*24*time.Hour)
			store := newFakeStore()
			store.readTakes, store.writeTakes = upTo(rnd, 100*time.Millisecond), upTo(rnd, 100*time.Millisecond)
			total, lost, term := int64(0), int64(0), owner.Term(&tenancy{})
			for range 1 + rnd.IntN(5) {
				mine, parted := &partOff{Store: store}, inStore(t, store, policy)
				e := tenant(t, mine, nil, term, policy)
				term = &sole{} // of an owner that has to read earlier counts
				pace, lives := time.Millisecond<<rnd.IntN(8), upTo(rnd, 2*time.Second)
				admitted, late := takesUntilParted(t, e, mine, rnd, pace, lives, stretch)
				unwritten := admitted - (inStore(t, store, policy) - parted)
				if unwritten > min(limit, late) {
					t.Errorf("%d units are lost, of %d that were admitted just before (replay: seed %d)", unwritten, late, seed)
				}
				total, lost = total+admitted, lost+unwritten
			}
			if total > limit+lost {
				t.Errorf("%d were admitted, limit %d, and %d lost (replay: seed %d)", total, limit, lost, seed)
			}
			if total > limit {
				beyond++
			}
		})
	}
	if beyond == 0 {
		t.Error("never more than the limit: nothing was tried")
	}
	t.Logf("more than the limit in %d of %d runs", beyond, runs)
}

// takesUntilParted takes at e, one call after the other, until mine, its store, is parted from it. It returns how many were
// allowed, and how many of them within stretch before the end, once calls that were under way are over.
func takesUntilParted(
	t *testing.T, e *limiter.Engine, mine *partOff, rnd *rand.Rand, pace, lives, stretch time.Duration,
) (admitted, late int64) {
	t.Helper()
	var at []time.Time
	for dies := time.Now().Add(lives); time.Now().Before(dies); time.Sleep(upTo(rnd, 2*pace)) {
		if d, err := e.Take(t.Context(), somebody); err == nil && d.Allowed {
			at = append(at, time.Now())
		}
	}
	mine.parted.Store(true)
	died := time.Now()
	time.Sleep(3 * time.Second)
	for _, when := range at {
		if died.Sub(when) < stretch {
			late++
		}
	}
	return int64(len(at)), late
}

// TestLocalWithoutRoom checks that the units that wait are bounded: beyond, units are written
// before they are admitted, and not forgotten once there is room.
func TestLocalWithoutRoom(t *testing.T) {
	if race.Enabled {
		t.Skip("one caller, and tens of thousands of keys")
	}
	bubble(t, "", func(t *testing.T) {
		store, algorithms := newFakeStore(), []string{"fixed-window", "token-bucket"}
		policies := []policy.Policy{inMemory("fixed-window", 3, time.Hour)}
		policies[0].Name = "filling"
		for _, algorithm := range algorithms {
			p := inMemory(algorithm, 3, 24*time.Hour)
			p.Name = algorithm
			policies = append(policies, p)
		}
		e := limiter.New(store, &limiter.Options{StoreTimeout: timeout, Owners: &owners{term: &tenancy{}}})
		if err := e.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		take := func(policy string, i int) (allowed bool) {
			d, err := e.Take(t.Context(), limiter.Demand{Policy: policy, Identifier: keys.Identifier(fmt.Sprint(i))})
			if err != nil {
				t.Fatal(err)
			}
			return d.Allowed
		}
		for i := range limiter.MaxUnwrittenKeys {
			take("filling", i)
		}
		if _, writes := store.counts(); writes > 0 {
			t.Fatalf("%d writes while there is room", writes)
		}
		for i, algorithm := range algorithms {
			take(algorithm, 0)
			if _, writes := store.counts(); writes != i+1 {
				t.Errorf("%s: %d writes without room, want %d", algorithm, writes, i+1)
			}
		}
		take("filling", 1)
		if _, writes := store.counts(); writes != len(algorithms) {
			t.Errorf("%d writes for a key that waits", writes)
		}
		e.Flush(t.Context())
		if lag := e.Behind(); lag.Written != limiter.MaxUnwrittenKeys || lag.Waiting != 0 {
			t.Errorf("%+v", lag)
		}
		for _, algorithm := range algorithms {
			for i, want := range []bool{true, true, false} {
				if take(algorithm, 0) != want {
					t.Errorf("%s: take %d of 3 is allowed: %t", algorithm, i+2, !want)
				}
			}
		}
	})
}

// TestLocalForgetsWhatIsOver checks that units that count no more are not tried for ever.
func TestLocalForgetsWhatIsOver(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			s := newFakeStore()
			s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
			e := tenant(t, s, nil, &tenancy{}, inMemory(algorithm, 3, time.Second))
			takes(t, e, 1)
			time.Sleep(5 * time.Second)
			if lag := e.Behind(); lag.Waiting != 0 {
				t.Errorf("%+v", lag)
			}
		})
	}
}

// TestLocalUnderAnotherPolicy holds that a reload loses nothing that was admitted and not written.
func TestLocalUnderAnotherPolicy(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			e := tenant(t, store, nil, &tenancy{}, inMemory(algorithm, 5, time.Hour))
			takes(t, e, 4)
			if err := e.SetPolicies([]policy.Policy{inMemory(algorithm, 6, time.Hour)}); err != nil {
				t.Fatal(err)
			}
			if allowed := takes(t, e, 3); allowed != 2 {
				t.Errorf("%d more of 6", allowed)
			}
		})
	}
}

// TestLocalWithoutOwners holds that where instances decide alike, local does as counted does.
func TestLocalWithoutOwners(t *testing.T) {
	for _, algorithm := range writtenBehind() {
		bubble(t, algorithm, func(t *testing.T) {
			store, p := newFakeStore(), inMemory(algorithm, 3, time.Hour)
			shared := &owners{term: everyones{}}
			e := limiter.New(store, &limiter.Options{Owners: shared})
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			if allowed := takes(t, instance(t, store, nil, p), 2) + takes(t, e, 2); allowed != 3 {
				t.Errorf("%d of 3", allowed)
			}
			if e.Behind() != (counted.Behind{}) {
				t.Errorf("%+v", e.Behind())
			}
		})
	}
}

// TestLocalOverAStoreInMemory holds that over a store that holds keys still there is nothing to write behind.
func TestLocalOverAStoreInMemory(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := embedded.New(nil)
		a, b := newEngine(t, store, 0, inMemory("sliding-log", 3, time.Hour)), newEngine(t, store, 0, inMemory("sliding-log", 3, time.Hour))
		if allowed := takes(t, a, 2) + takes(t, b, 2); allowed != 3 {
			t.Errorf("%d of 3", allowed)
		}
		if scope, caveat := a.Promise(a.Policies()[0]); scope != policy.ScopeCluster || caveat != "" {
			t.Errorf("%s %q", scope, caveat)
		}
	})
}

func TestLocalSaysWhatItDoesNotPromise(t *testing.T) {
	for levels, want := range map[policy.Level]string{
		policy.LevelQuorum:      "may be admitted again",
		policy.LevelLocalQuorum: "may be admitted again; each data centre counts on its own",
		policy.LevelOne:         "; write ONE with read ONE: a read may miss what was just recorded, so more than the limit can get through",
	} {
		p := inMemory("sliding-log", 3, time.Hour)
		p.Consistency = policy.Consistency{Write: levels, Read: levels}
		e := newEngine(t, newFakeStore(), 0, p)
		scope, caveat := e.Promise(e.Policies()[0])
		if scope != policy.ScopeNone || !strings.Contains(caveat, "writes behind") || !strings.HasSuffix(caveat, want) {
			t.Errorf("%s: %s %q", levels, scope, caveat)
		}
	}
	e := newEngine(t, newFakeStore(), 0, inMemory("token-bucket", 3, time.Hour))
	if _, caveat := e.Promise(e.Policies()[0]); !strings.HasSuffix(caveat, "; each data centre counts on its own") {
		t.Errorf("a bucket: %q", caveat)
	}
}

// partOff is a store that one instance can be parted from.
type partOff struct {
	store.Store
	parted atomic.Bool // nothing reaches the store
	parts  atomic.Bool // it is parted by the next write, which is stored and has no answer
}

// Read reads, unless it is parted.
func (p *partOff) Read(ctx context.Context, q *store.Query) (store.State, error) {
	if p.parted.Load() {
		return store.State{}, store.ErrUnavailable
	}
	return p.Store.Read(ctx, q)
}

// Write stores, unless it is parted.
func (p *partOff) Write(ctx context.Context, w *store.Write) error {
	if p.parted.Load() {
		return store.ErrUnavailable
	}
	err := p.Store.Write(ctx, w)
	if p.parts.Swap(false) {
		p.parted.Store(true)
		return store.ErrUnavailable
	}
	return err
}

func (p *partOff) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, p, w, wrote)
}

func (p *partOff) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, p, w, q)
}
