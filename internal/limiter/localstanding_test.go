package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// standingInMemory returns policies that are decided in memory and have standing leases: one
// unit of a log's ten, and allowance of a window's thousand.
func standingInMemory() []limiter.Policy {
	policies := []limiter.Policy{
		inMemory("sliding-log", 10, time.Minute), inMemory("sliding-tail", 1000, time.Minute), inMemory("fixed-window", 1000, time.Minute),
	}
	for i := range policies {
		policies[i].Leases = limiter.LeasesStanding
	}
	return policies
}

// aheadOf returns how many units the first instance counts ahead of a key of policy: two of a
// log, of which the next has one.
func aheadOf(policy limiter.Policy) int { return max(2, int(policy.Limits[0].Limit)/64) }

// untilAllowances is longer than it takes from the first request until allowances are made, and
// all have read of them.
const untilAllowances = 1100*time.Millisecond + limiter.DefaultSyncInterval + timeout

// standInMemory calls test in a window that began some seconds ago, with two engines over a
// store, both with an allowance, the first of which is the older one.
func standInMemory(t *testing.T, policy limiter.Policy, test func(t *testing.T, store *fakeStore, e, other *limiter.Engine)) {
	bubble(t, policy.Limits[0].Algorithm, func(t *testing.T) {
		nearEnd(0)
		store := newFakeStore()
		feed := twice{store.Store.(*embedded.Store)}
		e, other := instance(t, store, feed, policy), instance(t, store, feed, policy)
		stand(t, e)
		stand(t, other)
		time.Sleep(untilAllowances)
		nextSync()
		test(t, store, e, other)
	})
}

// ofAKey reports whether w stores anything for a key, and not an allowance.
func ofAKey(w limiter.Write) bool {
	return len(w.Events) > 0 || slices.ContainsFunc(w.Put, func(p limiter.Tally) bool { return p.Limit != "1000" && p.Limit != "10 in 1m0s" })
}

// written returns what was written of keys.
func (f *fakeStore) written() (writes []limiter.Write) {
	f.set(func() {
		writes = slices.DeleteFunc(slices.Clone(f.writes), func(w limiter.Write) bool { return !ofAKey(w) })
	})
	return writes
}

// Nothing is written or read of who uses no more than is counted ahead; what comes then is,
// and alone.
func TestLocalStandingWritesNothingOfNewCallers(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
			before := len(store.written())
			for i := range 100 {
				for used := range aheadOf(policy) {
					d := takeOf(t, e, limiter.Identifier(strconv.Itoa(i)))
					if !d.Leased || !d.Allowed || d.Recorded != limiter.RecordedYes || d.Used != int64(used)+1 {
						t.Fatalf("%+v: want unit %d of what is counted ahead", d, used+1)
					}
				}
			}
			if e.Behind().Waiting != 0 {
				t.Errorf("%d keys wait to be written", e.Behind().Waiting)
			}
			nextSync()
			if now := len(store.written()); now != before {
				t.Fatalf("%d writes of who uses what is counted ahead", now-before)
			}
			if d := takeOf(t, e, "7"); d.Leased || d.Used != int64(aheadOf(policy))+1 {
				t.Errorf("%+v: more than is counted ahead", d)
			}
			nextSync()
			if writes := store.written()[before:]; len(writes) != 1 || unitsOfWrite(writes[0]) != 1 {
				t.Errorf("%+v: want one unit written", writes)
			}
			time.Sleep(5 * time.Second) // what is not in the store is not taken for what was removed there
			nextSync()
			if d := takeOf(t, e, "7"); d.Used != int64(aheadOf(policy))+2 {
				t.Errorf("%+v: want what was counted ahead to count still", d)
			}
			if d := takeAs(t, e, "costly", int64(aheadOf(policy))+1); d.Leased {
				t.Errorf("%+v: costs more than is counted ahead", d.Decision)
			}
		})
	}
}

func unitsOfWrite(w limiter.Write) (units int64) {
	for _, e := range w.Events {
		units += e.Cost
	}
	for _, p := range w.Put {
		units += p.Units
	}
	return units
}

// Who has used half of a limit is denied by what others may have handed out of their
// allowances: all admit the limit together, whether something was handed out or not, and
// whether who handed it out is still there.
func TestLocalStandingCountsOthersAllowances(t *testing.T) {
	for _, policy := range standingInMemory() {
		for _, used := range []int{0, 1} {
			standInMemory(t, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
				limit, ahead := int(policy.Limits[0].Limit), aheadOf(policy)
				handed := used * takes(t, e, ahead)
				if used == 0 {
					handed = 0
				}
				admitted := 0
				for range 2 * limit {
					if mustTake(t, other).Allowed {
						admitted++
					}
				}
				// A log's allowance of the period before may count, too.
				if most, least := limit-ahead, limit-3*ahead; admitted > most || admitted < least {
					t.Errorf("%d admitted beside an allowance of %d, want %d to %d", admitted, ahead, least, most)
				}
				if handed+admitted > limit {
					t.Errorf("%d and %d admitted of %d", handed, admitted, limit)
				}
				if d := mustTake(t, other); d.Used > int64(limit) || d.RetryAfter <= 0 {
					t.Errorf("%+v: want a denial that ends", d)
				}
			})
		}
	}
}

// An allowance is used only once others have read of it.
func TestLocalStandingWaitsUntilOthersKnow(t *testing.T) {
	policy := standingInMemory()[0]
	bubble(t, "", func(t *testing.T) {
		nearEnd(0)
		store := newFakeStore()
		e := instance(t, store, nil, policy)
		began := time.Now()
		for i := 0; !takeOf(t, e, limiter.Identifier(strconv.Itoa(i))).Leased; i++ {
			time.Sleep(10 * time.Millisecond)
		}
		var made time.Time
		store.set(func() {
			for _, w := range store.writes {
				if !ofAKey(w) && made.IsZero() {
					made = time.UnixMicro(w.Put[0].Stamp)
				}
			}
		})
		if since := time.Since(made); made.Before(began) || since < limiter.DefaultSyncInterval+timeout || since > 2*time.Second {
			t.Errorf("used %v after it was made", since)
		}
	})
}

// What was handed out is given back here, and by the instance that hands it out where another
// is asked: once, and none of it is below what others count.
func TestLocalStandingRefunds(t *testing.T) {
	for _, policy := range standingInMemory() {
		for _, elsewhere := range []bool{false, true} {
			standInMemory(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
				asked := e
				if elsewhere {
					asked = other
				}
				before := len(store.written())
				for round := range 5 {
					a := takeAs(t, e, somebody.Identifier, 1)
					if !a.Leased || a.Used != 1 || a.Receipt == "" {
						t.Fatalf("round %d: %+v: want the first unit, ahead", round, a)
					}
					if err := asked.Refund(t.Context(), a.Receipt); err != nil {
						t.Fatal(err)
					}
					if err := asked.Refund(t.Context(), a.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
						t.Errorf("refunded twice: %v", err)
					}
					time.Sleep(2 * time.Second) // the news are heard more than once
					if d := mustCheck(t, e); d.Used != 0 {
						t.Fatalf("round %d: %+v: want nothing used", round, d)
					}
				}
				nextSync()
				if writes := store.written()[before:]; len(writes) > 0 {
					t.Errorf("written of what was never stored: %+v", writes)
				}
			})
		}
	}
}

// Units that were written are given back as ever, beside some that were not.
func TestLocalStandingRefundsWhatWasWritten(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			takes(t, e, aheadOf(policy))
			a := takeAs(t, e, somebody.Identifier, 1)
			if a.Leased {
				t.Fatalf("%+v: want it written", a)
			}
			nextSync()
			if err := other.Refund(t.Context(), a.Receipt); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			mustTake(t, e)
			nextSync()
			nextSync()
			if d := mustCheck(t, e); d.Used != int64(aheadOf(policy))+1 {
				t.Errorf("%+v: want %d used", d, aheadOf(policy)+1)
			}
		})
	}
}

// A reset that another instance was asked for forgets what was handed out.
func TestLocalStandingResets(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			mustTake(t, e)
			if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			if d := mustTake(t, e); d.Used != 1 {
				t.Errorf("%+v: want what came after the reset", d)
			}
		})
	}
}

// Who has limits of their own is written from the first unit on, and counts what others may
// have handed out before, and nothing of windows that begin when all have heard of it.
func TestLocalStandingUnderAnOverride(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			ahead := aheadOf(policy)
			limit := ahead + max(1, ahead/3)
			over := limiter.Override{Kind: limiter.OverrideLimits, Until: limiter.InstantOf(time.Now().Add(time.Hour))}
			over.Limits = []limiter.LimitOverride{{Name: policy.Limits[0].WithDefaults().Name, Limit: int64(limit)}}
			for _, id := range []limiter.Identifier{somebody.Identifier, "late"} {
				if d := takeAs(t, e, id, int64(ahead)); !d.Leased {
					t.Fatalf("%+v", d)
				}
				if _, err := e.SetOverride(t.Context(), "p", id, over); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			if allowed := takes(t, other, 2*limit); allowed != limit-ahead {
				t.Errorf("%d of %d beside %d that may be handed out", allowed, limit, ahead)
			}
			late := instance(t, store, twice{store.Store.(*embedded.Store)}, policy) // which is asked for nobody else
			if d := takeOf(t, late, "late"); d.Used != 1 {
				t.Errorf("%+v: want it decided by what is known", d)
			}
			nextSync()
			if d := takeOf(t, late, "late"); d.Allowed {
				t.Errorf("%+v: beside two allowances of %d", d, ahead)
			}
			for i := range 4 {
				nearEnd(0)
				time.Sleep(time.Second)
				for _, engine := range []*limiter.Engine{e, other} { // so that they go on having allowances
					takeOf(t, engine, limiter.Identifier(strconv.Itoa(i)))
				}
			}
			if allowed := takes(t, other, 2*limit); allowed != limit {
				t.Errorf("%d of %d once nobody hands anything out", allowed, limit)
			}
			time.Sleep(30 * time.Second)
			if d := takeOf(t, other, "somebody else"); !d.Leased {
				t.Errorf("%+v: that is no reason to write others", d)
			}
		})
	}
}

// Of windows that may have been reset before this process started, all is written, and read.
func TestLocalStandingBesideResetsBeforeItsTime(t *testing.T) {
	policy := inMemory("fixed-window", 1000, time.Hour)
	policy.Leases = limiter.LeasesStanding
	bubble(t, "", func(t *testing.T) {
		e := instance(t, newFakeStore(), nil, policy)
		began := time.Now()
		for i := 0; !takeOf(t, e, limiter.Identifier(strconv.Itoa(i))).Leased; i++ {
			time.Sleep(10 * time.Second)
		}
		if since := time.Since(began); since < 2*time.Hour || since > 3*time.Hour {
			t.Errorf("ahead %v after the start", since)
		}
	})
}

// A call that may come again is written: its answer is kept beside what counts of it.
func TestLocalStandingOfCallsWithKeys(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
			before := len(store.written())
			store.set(func() { store.readTakes, store.writeTakes = 3*time.Millisecond, 3*time.Millisecond })
			for range 2 {
				call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
				if a, err := e.Do(t.Context(), &call); err != nil || a.Leased || a.Used != 1 {
					t.Fatalf("%+v, %v", a, err)
				}
				nextSync()
			}
			if writes := store.written()[before:]; len(writes) != 1 || unitsOfWrite(writes[0]) != 1 {
				t.Errorf("%+v: want the unit written", writes)
			}
		})
	}
}

// Where nobody can be told of anything, who handed out gives back all the same; and who has no
// memory of the kind passes over what is told of it.
func TestLocalStandingRefundsAreTheirMakersOwn(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			counted := policy
			counted.Guarantee, counted.Counting = limiter.GuaranteeCounted, limiter.CountingRows
			running(t, toldEngine(t, store, counted))
			if err := other.Refund(t.Context(), takeAs(t, e, "told of", 1).Receipt); err != nil {
				t.Error(err)
			}
			deaf := instance(t, store, nil, policy)
			if err := deaf.Refund(t.Context(), takeAs(t, e, somebody.Identifier, 1).Receipt); !errors.Is(err, limiter.ErrUnavailable) {
				t.Errorf("%v: want that nobody can be told", err)
			}
			alone := instance(t, newFakeStore(), nil, policy)
			takeOf(t, alone, "whoever comes first")
			time.Sleep(untilAllowances)
			a := takeAs(t, alone, somebody.Identifier, 1)
			if err := alone.Refund(t.Context(), a.Receipt); err != nil || !a.Leased {
				t.Errorf("%+v: %v", a, err)
			}
			if d := mustCheck(t, alone); d.Used != 0 {
				t.Errorf("%+v: want nothing used", d)
			}
		})
	}
}

// What was counted for another limit is not given back of this one.
func TestLocalStandingRefundsAfterAReload(t *testing.T) {
	for _, policy := range standingInMemory()[1:] {
		standInMemory(t, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			a := []limiter.Answer{takeAs(t, e, somebody.Identifier, 1), takeAs(t, e, somebody.Identifier, 1)}
			changed := policy
			changed.Limits = slices.Clone(policy.Limits)
			changed.Limits[0].Name = "another"
			for i, engine := range []*limiter.Engine{e, other} { // one after the other
				if err := engine.SetPolicies([]limiter.Policy{changed}); err != nil {
					t.Fatal(err)
				}
				mustTake(t, e)
				if err := other.Refund(t.Context(), a[i].Receipt); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				if d := mustCheck(t, e); d.Used != int64(i)+1 {
					t.Errorf("%+v: want what is of this limit", d)
				}
			}
		})
	}
}

// twice is a feed that tells all news again, under other ids.
type twice struct{ *embedded.Store }

func (f twice) Changes(ctx context.Context, q *limiter.ChangeQuery) ([]limiter.Change, error) {
	changes, err := f.Store.Changes(ctx, q)
	for _, c := range slices.Clone(changes) {
		c.ID[9] ^= 1
		changes = append(changes, c)
	}
	return changes, err
}

// Who uses what is counted ahead needs no room among what waits to be written.
func TestLocalStandingNeedsNoRoom(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
			limiter.FillRoom(e)
			if d := takeOf(t, e, "new"); !d.Leased {
				t.Errorf("%+v", d)
			}
			call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: "a"}, {Policy: "p", Identifier: "b"}}}
			if a, err := e.Do(t.Context(), &call); err != nil || !a.Demands[0].Leased || !a.Demands[1].Leased {
				t.Errorf("%+v, %v", a, err)
			}
			more := limiter.Demand{Policy: "p", Identifier: "c", Cost: int64(aheadOf(policy)) + 1}
			if _, err := e.Take(t.Context(), more); !errors.Is(err, limiter.ErrOverloaded) {
				t.Errorf("%v: want no room for what has to be written", err)
			}
		})
	}
}

// Calls of several demands count others' allowances as takes of one do.
func TestLocalStandingInCallsOfSeveral(t *testing.T) {
	for _, policy := range standingInMemory() {
		standInMemory(t, policy, func(t *testing.T, _ *fakeStore, _, other *limiter.Engine) {
			limit, ahead := int(policy.Limits[0].Limit), aheadOf(policy)
			admitted := 0
			for i := range limit {
				another := limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint("no ", i))}
				call := limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody, another}}
				a, err := other.Do(t.Context(), &call)
				if err != nil {
					t.Fatal(err)
				}
				if a.Allowed {
					admitted++
				} else if a.Demands[1].Recorded == limiter.RecordedYes {
					t.Fatalf("%+v: half of a call counts", a)
				}
			}
			if admitted > limit-ahead || admitted < limit-3*ahead {
				t.Errorf("%d admitted beside an allowance of %d", admitted, ahead)
			}
		})
	}
}

// TestLocalStandingOvershootIsBounded holds the sum of what several instances admit, of which
// some is never written, to what is promised without allowances.
func TestLocalStandingOvershootIsBounded(t *testing.T) {
	const runs, window = 60, 20 * time.Second
	ahead := 0
	for seed := range uint64(runs) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 3))
			policies := standingInMemory()
			policy := policies[seed%uint64(len(policies))]
			limit := 8 + rnd.Int64N(40)
			if policy.Limits[0].Algorithm != "sliding-log" {
				limit = 128 + rnd.Int64N(300)
			}
			policy.Limits[0].Limit, policy.Limits[0].Window = limit, window
			store := newFakeStore()
			store.readTakes, store.writeTakes = upTo(rnd, 200*time.Millisecond), upTo(rnd, 200*time.Millisecond)
			stretch := limiter.DefaultSyncInterval + store.readTakes + store.writeTakes
			time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
			admitted := askAround(t, store, rnd, policy, window-time.Second)
			synctest.Wait()
			total, bound := int64(0), limit
			for i := range admitted {
				total += unitsOf(admitted[i])
				bound += first(admitted[i]) + most(admitted[i], stretch)
			}
			least := slices.MinFunc(admitted, func(a, b []admission) int { return int(first(a) + most(a, stretch) - first(b) - most(b, stretch)) })
			bound -= first(least) + most(least, stretch)
			if total > bound {
				t.Errorf("%s, %d instances: %d of %d were admitted, at most %d may be (replay: seed %d)",
					policy.Limits[0].Algorithm, len(admitted), total, limit, bound, seed)
			}
			for _, of := range admitted {
				ahead += len(of) - len(slices.DeleteFunc(slices.Clone(of), func(a admission) bool { return a.leased }))
			}
		})
	}
	if ahead == 0 {
		t.Error("nothing was counted ahead: nothing was tried")
	}
}
