package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// inMemory returns a policy of one limit that is decided in memory.
func inMemory(algorithm string, limit int64, window time.Duration) limiter.Policy {
	p := policyOf(algorithm, limit, window)
	p.Guarantee = limiter.GuaranteeLocal
	return p
}

// nextSync waits until every engine of the bubble has synced.
func nextSync() {
	time.Sleep(limiter.DefaultSyncInterval)
	synctest.Wait()
}

// wantDatedByTheirIDs looks at all events that were written to store.
func wantDatedByTheirIDs(t *testing.T, store *fakeStore) {
	t.Helper()
	var writes []limiter.Write
	store.set(func() { writes = slices.Clone(store.writes) })
	for _, w := range writes {
		for _, event := range w.Events {
			if event.At != event.ID.Instant() {
				t.Errorf("an event of %d is written as one of %d", event.At, event.ID.Instant())
			}
		}
	}
}

// someSyncs waits for some syncs, in which instances that met at a bucket get in turn.
func someSyncs() {
	time.Sleep(4 * limiter.DefaultSyncInterval)
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

// Nobody is asked for a decision, whatever the store takes; a key that is seen once costs
// one write, and one that is seen more often a read as well.
func TestLocalAsksNobody(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			store.readTakes, store.writeTakes = time.Minute, 10*time.Millisecond
			e := instance(t, store, nil, inMemory(algorithm, 3, time.Minute))
			began := time.Now()
			if d := mustTake(t, e); !d.Allowed || d.Used != 1 || d.Recorded != limiter.RecordedYes || d.Policy.Name != "p" {
				t.Errorf("%+v", d)
			}
			if reads, writes := store.counts(); reads+writes > 0 || time.Since(began) > 0 {
				t.Errorf("%d reads and %d writes, and %v, before the answer", reads, writes, time.Since(began))
			}
			nextSync()
			if reads, writes := store.counts(); reads != 0 || writes != 1 {
				t.Errorf("%d reads and %d writes of a key that was seen once", reads, writes)
			}
			if allowed := takes(t, e, 3); allowed != 2 {
				t.Errorf("%d more of 3 in all", allowed)
			}
			nextSync()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
			if reads, writes := store.counts(); reads != 1 || writes != 2 {
				t.Errorf("%d reads and %d writes after it was seen again", reads, writes)
			}
			takes(t, e, 5)
			time.Sleep(time.Second)
			if reads, writes := store.counts(); reads < 1 || writes != 2 {
				t.Errorf("%d reads and %d writes: denials are written", reads, writes)
			}
		})
	}
}

// A key that is seen for the first time is read where it may have been reset before this
// process started and nobody tells of it any more.
func TestLocalLooksForResetsBeforeItsTime(t *testing.T) {
	for window, reads := range map[time.Duration][2]int{10 * time.Minute: {0, 0}, time.Hour: {1, 1}, 24 * time.Hour: {1, 2}} {
		bubble(t, window.String(), func(t *testing.T) {
			store := newFakeStore()
			e := instance(t, store, nil, inMemory("fixed-window", 3, window))
			for i, want := range reads {
				time.Sleep(time.Duration(i) * 3 * time.Hour)
				d := somebody
				d.Identifier += limiter.Identifier(fmt.Sprint(i))
				if _, err := e.Take(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				nextSync()
				if got, _ := store.counts(); got != want {
					t.Errorf("%d reads, want %d", got, want)
				}
			}
		})
	}
}

// What one instance counts, the others know after a sync of each, and count it once,
// however often they read it.
func TestLocalMergesWhatOthersCount(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			time.Sleep(time.Minute - time.Duration(time.Now().UnixNano())%time.Minute)
			policy := inMemory(algorithm, 10, time.Minute)
			a, b := instance(t, store, nil, policy), instance(t, store, nil, policy)
			if allowed := takes(t, a, 5); allowed != 5 {
				t.Fatalf("%d of 5", allowed)
			}
			nextSync()
			if d := mustTake(t, b); d.Used != 1 {
				t.Errorf("the first request is decided by what is known: %+v", d.Verdict)
			}
			nextSync()
			if d := mustTake(t, b); d.Used != 2 {
				t.Errorf("and so is the next: %+v", d.Verdict)
			}
			nextSync()
			for range 2 {
				if d := mustCheck(t, b); d.Used != 7 {
					t.Errorf("then what was merged counts: used %d, want 7", d.Used)
				}
				nextSync()
			}
			mustCheck(t, a)
			nextSync()
			if d := mustCheck(t, a); d.Used != 7 {
				t.Errorf("at the other instance: used %d, want 7", d.Used)
			}
			if allowed := takes(t, b, 5); allowed != 3 {
				t.Errorf("%d more passed, want 3", allowed)
			}
		})
	}
}

// admission is one unit that an instance let through.
type admission struct {
	at   time.Time
	by   int
	cost int64
}

// TestLocalOvershootIsBounded has several instances hammer one key, or touch it now and
// then, over a store that takes its time, and holds the sum to what is promised.
func TestLocalOvershootIsBounded(t *testing.T) {
	const runs, window = 60, 20 * time.Second
	beyond := 0
	for seed := range uint64(runs) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			algorithm := writtenFirst()[seed%uint64(len(writtenFirst()))]
			limit := 1 + rnd.Int64N(40)
			store := newFakeStore()
			store.readTakes, store.writeTakes = upTo(rnd, 200*time.Millisecond), upTo(rnd, 200*time.Millisecond)
			stretch := limiter.DefaultSyncInterval + store.readTakes + store.writeTakes
			time.Sleep(window - time.Duration(time.Now().UnixNano())%window) // windows of all algorithms begin now
			admitted := askAround(t, store, rnd, inMemory(algorithm, limit, window), window-time.Second)
			total, bound := int64(0), limit
			for i := range admitted {
				total += unitsOf(admitted[i])
				bound += first(admitted[i]) + most(admitted[i], stretch)
			}
			least := slices.MinFunc(admitted, func(a, b []admission) int { return int(first(a) + most(a, stretch) - first(b) - most(b, stretch)) })
			bound -= first(least) + most(least, stretch)
			if total > bound {
				t.Errorf("%s, %d instances: %d of %d were admitted, at most %d may be (replay: seed %d)",
					algorithm, len(admitted), total, limit, bound, seed)
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

// askAround has two to four instances ask for the same key for a while, each at a pace of its
// own, and returns what each of them admitted.
func askAround(t *testing.T, store *fakeStore, rnd *rand.Rand, policy limiter.Policy, lasts time.Duration) [][]admission {
	admitted := make([][]admission, 2+rnd.IntN(3))
	var all sync.WaitGroup
	for i := range admitted {
		phase, delay, seed := upTo(rnd, limiter.DefaultSyncInterval), upTo(rnd, lasts/2), rnd.Uint64()
		pace := time.Millisecond << rnd.IntN(12)
		all.Go(func() {
			time.Sleep(phase) // their syncs are not in step
			e := instance(t, store, nil, policy)
			time.Sleep(delay)
			rnd := rand.New(rand.NewPCG(seed, 2))
			for end := time.Now().Add(lasts - 2*delay); time.Now().Before(end); time.Sleep(upTo(rnd, 2*pace)) {
				cost := 1 + rnd.Int64N(min(3, policy.Limits[0].Limit))
				d := somebody
				d.Cost = cost
				if got, err := e.Take(context.Background(), d); err != nil {
					t.Error(err)
				} else if got.Allowed {
					admitted[i] = append(admitted[i], admission{time.Now(), i, cost})
				}
			}
		})
	}
	all.Wait()
	return admitted
}

// upTo returns a time above 0, and up to most.
func upTo(rnd *rand.Rand, most time.Duration) time.Duration {
	return time.Duration(1 + rnd.Int64N(int64(most)))
}

func unitsOf(admitted []admission) (units int64) {
	for _, a := range admitted {
		units += a.cost
	}
	return units
}

// first returns the units of the first admission.
func first(admitted []admission) int64 {
	return unitsOf(admitted[:min(1, len(admitted))])
}

// most returns the units that were admitted at most within any stretch of time.
func most(admitted []admission, stretch time.Duration) (units int64) {
	from := 0
	for i, a := range admitted {
		for a.at.Sub(admitted[from].at) > stretch {
			from++
		}
		units = max(units, unitsOf(admitted[from:i+1]))
	}
	return units
}

// What was counted until a sync is known to whoever reads after it, so that instances which
// ask at the same pace, and sync at the same time, pass the limit by what one of them
// admits within one interval, and not within two.
func TestLocalIsWrittenBeforeItIsRead(t *testing.T) {
	const pace = 10 * time.Millisecond
	for limit := int64(100); limit < 200; limit += 7 {
		bubble(t, fmt.Sprint(limit), func(t *testing.T) {
			time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
			store, policy := newFakeStore(), inMemory("fixed-window", limit, time.Hour)
			store.writeTakes = time.Millisecond // so that both are at it at the same time
			engines := []*limiter.Engine{instance(t, store, nil, policy), instance(t, store, nil, policy)}
			time.Sleep(pace / 2)
			total := 0
			for range limit {
				for _, e := range engines {
					total += takes(t, e, 1)
				}
				time.Sleep(pace)
			}
			if most := limit + 1 + int64(limiter.DefaultSyncInterval/pace); int64(total) > most {
				t.Errorf("%d of %d were admitted, at most %d may be", total, limit, most)
			}
		})
	}
}

// While the store does not answer each instance goes by its own counts. Then all that was
// counted is written, once.
func TestLocalThroughAnOutage(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		for name, stored := range map[string]bool{"stored": true, "not stored": false} {
			bubble(t, algorithm+", what failed was "+name, func(t *testing.T) {
				store := newFakeStore()
				policy := inMemory(algorithm, 4, time.Hour)
				time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
				engines := []*limiter.Engine{instance(t, store, nil, policy), instance(t, store, nil, policy)}
				down := errors.Join(limiter.ErrUnavailable, errors.New("down"))
				store.set(func() {
					store.onWrite = func(w *limiter.Write) error {
						if stored {
							_ = store.Store.Write(t.Context(), w)
						}
						return down
					}
					store.afterRead = func(*limiter.State) error { return down }
				})
				for round := range 2 {
					for _, e := range engines {
						if allowed := takes(t, e, 3); allowed != 3-2*round {
							t.Errorf("round %d: %d passed", round, allowed)
						}
					}
					time.Sleep(3 * time.Second)
					synctest.Wait()
				}
				for _, e := range engines {
					if lag := e.Behind(); lag.Waiting != 1 || lag.Lag < 6*time.Second || lag.Failed < 10 {
						t.Errorf("%+v in the outage", lag)
					}
				}
				store.set(func() { store.onWrite, store.afterRead = nil, nil })
				someSyncs()
				synctest.Wait()
				for _, e := range engines {
					if lag := e.Behind(); lag.Waiting != 0 || lag.Lag != 0 || lag.Written == 0 {
						t.Errorf("%+v after the outage", lag)
					}
				}
				if got := seenAnew(t, store, policy); got != 8 {
					t.Errorf("%d units are in the store, want 8", got)
				}
			})
		}
	}
}

// seenAnew returns what an instance that is started now finds counted.
func seenAnew(t *testing.T, store *fakeStore, policy limiter.Policy) int64 {
	t.Helper()
	policy.Limits = slices.Clone(policy.Limits)
	policy.Limits[0].Limit = 1000 // what is used is exact up to the limit
	e := instance(t, store, nil, policy)
	mustCheck(t, e)
	someSyncs()
	return mustCheck(t, e).Used
}

// What waits when an engine ends is written then.
func TestLocalIsWrittenAtAStop(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			policy := inMemory(algorithm, 4, time.Hour)
			e := newEngine(t, store, 0, policy)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { defer close(done); _ = e.Run(ctx) }()
			takes(t, e, 3)
			failures := 2
			store.set(func() {
				store.onWrite = func(*limiter.Write) error {
					if failures--; failures >= 0 {
						return errors.Join(limiter.ErrUnavailable, limiter.ErrNotStored)
					}
					return nil
				}
			})
			cancel()
			<-done
			if got := seenAnew(t, store, policy); got != 3 {
				t.Errorf("%d units are in the store, want 3", got)
			}
		})
	}
}

// A stop ends in time though the store does not answer.
func TestLocalStopsInTime(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes = time.Hour
		e := newEngine(t, store, 0, inMemory("sliding-log", 4, time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = e.Run(ctx) }()
		takes(t, e, 3)
		time.Sleep(300 * time.Millisecond)
		began := time.Now()
		cancel()
		<-done
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A reset reaches every instance within a second, whatever it knew, and the shared store;
// what is counted then counts everywhere.
func TestLocalReset(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		for _, window := range []time.Duration{time.Minute, 24 * time.Hour} {
			bubble(t, algorithm+" "+window.String(), func(t *testing.T) {
				time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
				store, feed := newFakeStore(), newFakeFeed()
				policy := inMemory(algorithm, 5, window)
				a, b, c := instance(t, store, feed, policy), instance(t, store, feed, policy), instance(t, store, feed, policy)
				takes(t, a, 5)
				takes(t, b, 5)
				time.Sleep(time.Second)
				mustReset(t, a)
				takes(t, a, 1) // it is dated after the reset, which is ahead of the clock
				time.Sleep(time.Second)
				if here, there := mustCheck(t, a).Used, mustCheck(t, b).Used; here != 1 || there != 0 {
					t.Errorf("%d used where it was reset, %d elsewhere", here, there)
				}
				for _, e := range []*limiter.Engine{a, b, c} { // c has never seen the key
					if allowed := takes(t, e, 1); allowed != 1 {
						t.Error("denied after the reset")
					}
				}
				someSyncs()
				wantDatedByTheirIDs(t, store)
				late := instance(t, store, feed, policy)
				for range 2 {
					for _, e := range []*limiter.Engine{a, b, c, late} {
						mustCheck(t, e)
					}
					someSyncs()
				}
				for i, e := range []*limiter.Engine{a, b, c, late} {
					if used := mustCheck(t, e).Used; used != 4 {
						t.Errorf("instance %d: %d used, want 4", i, used)
					}
				}
			})
		}
	}
}

// An instance that does not hear of a reset finds it with the counts, and what it counted
// after the reset by what it knew counts on.
func TestLocalResetThatIsNotHeard(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			const window = 24 * time.Hour
			time.Sleep(window - time.Duration(time.Now().UnixNano())%window)
			store := newFakeStore()
			policy := inMemory(algorithm, 4, window)
			a, b := instance(t, store, nil, policy), instance(t, store, nil, policy)
			takes(t, a, 4)
			someSyncs()
			mustReset(t, a)
			takes(t, a, 1)
			time.Sleep(2 * time.Second)
			takes(t, b, 1)
			someSyncs()
			someSyncs()
			for i, e := range []*limiter.Engine{a, b} {
				mustCheck(t, e)
				someSyncs()
				if used := mustCheck(t, e).Used; used != 2 {
					t.Errorf("instance %d: %d used, want 2", i, used)
				}
			}
		})
	}
}

// A refund gives back once, here and elsewhere, whoever counted the unit, before it is
// written and after.
func TestLocalRefund(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		for _, written := range []bool{false, true} {
			for _, elsewhere := range []bool{false, true} {
				bubble(t, fmt.Sprintf("%s, written %v, elsewhere %v", algorithm, written, elsewhere), func(t *testing.T) {
					time.Sleep(time.Hour - time.Duration(time.Now().UnixNano())%time.Hour)
					store, feed := newFakeStore(), newFakeFeed()
					policy := inMemory(algorithm, 3, time.Hour)
					a, b := instance(t, store, feed, policy), instance(t, store, feed, policy)
					takes(t, a, 2)
					answer := mustDo(t, a, limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}})
					if written {
						someSyncs()
					}
					at := a
					if elsewhere {
						at = b
					}
					if err := at.Refund(t.Context(), answer.Receipt); err != nil {
						t.Fatal(err)
					}
					time.Sleep(3 * time.Second)
					for range 2 { // who is denied finds out that something was given back
						_, _ = mustCheck(t, a), mustCheck(t, b)
						someSyncs()
					}
					for i, e := range []*limiter.Engine{a, b} {
						if used := mustCheck(t, e).Used; used != 2 {
							t.Errorf("instance %d: %d used, want 2", i, used)
						}
					}
					if err := b.Refund(t.Context(), answer.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
						t.Errorf("refunded twice: %v", err)
					}
					if allowed := takes(t, a, 2); allowed != 1 {
						t.Errorf("%d more passed, want 1", allowed)
					}
				})
			}
		}
	}
}

// What another instance counted and has not written yet is not given back before: whoever
// read the one without the other would count too little.
func TestLocalRefundOfWhatIsNotWritten(t *testing.T) {
	for _, algorithm := range writtenFirst()[1:] { // a log's events have names
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			slow := &fakeStore{Store: store.Store}
			policy := inMemory(algorithm, 9, time.Hour)
			a, b, c := instance(t, slow, nil, policy), instance(t, store, nil, policy), instance(t, store, nil, policy)
			counted := mustDo(t, a, limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}})
			slow.set(func() { slow.writeTakes = 400 * time.Millisecond })
			if err := b.Refund(t.Context(), counted.Receipt); err != nil {
				t.Fatal(err)
			}
			takes(t, c, 2)
			for range 20 {
				if used := mustCheck(t, c).Used; used < 2 {
					t.Fatalf("%d used, where 2 were taken", used)
				}
				time.Sleep(200 * time.Millisecond)
			}
			if used := mustCheck(t, c).Used; used != 2 {
				t.Errorf("%d used in the end, want 2", used)
			}
		})
	}
}

// What waits is bounded: past it the policy says what becomes of a request, and what was
// noted is written all the same.
func TestLocalIsBounded(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		policy := inMemory("fixed-window", 3, time.Hour)
		e := newEngine(t, store, 0, policy)
		take := func(i int) error {
			_, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(i))})
			return err
		}
		for i := range limiter.MaxUnsyncedKeys {
			if err := take(i); err != nil {
				t.Fatal(err)
			}
		}
		var failed *limiter.StoreError
		if err := take(-1); !errors.Is(err, limiter.ErrOverloaded) || !errors.As(err, &failed) || failed.Recorded != limiter.RecordedNo {
			t.Errorf("one key too many: %v", err)
		}
		running(t, e)
		nextSync()
		if lag := e.Behind(); lag.Written != limiter.MaxUnsyncedKeys || lag.Waiting != 0 {
			t.Errorf("%+v", lag)
		}
		if err := take(-1); err != nil {
			t.Errorf("after the sync: %v", err)
		}
	})
}

// What nobody counts any more is not tried for ever.
func TestLocalForgetsWhatIsOver(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			store.onWrite = func(*limiter.Write) error { return limiter.ErrUnavailable }
			e := instance(t, store, nil, inMemory(algorithm, 3, time.Second))
			takes(t, e, 1)
			time.Sleep(5 * time.Second)
			if lag := e.Behind(); lag.Waiting != 0 {
				t.Errorf("%+v", lag)
			}
		})
	}
}

// Over a store that holds keys still there is nothing to write behind: local is exact.
func TestLocalOverAStoreInMemory(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := embedded.New(nil)
		a, b := newEngine(t, store, 0, inMemory("sliding-log", 3, time.Hour)), newEngine(t, store, 0, inMemory("sliding-log", 3, time.Hour))
		if allowed := takes(t, a, 2) + takes(t, b, 2); allowed != 3 {
			t.Errorf("%d of 3", allowed)
		}
		if scope, caveat := a.Promise(a.Policies()[0]); scope != limiter.ScopeCluster || caveat != "" {
			t.Errorf("%s %q", scope, caveat)
		}
	})
}

func TestLocalSaysWhatItDoesNotPromise(t *testing.T) {
	for levels, want := range map[limiter.Level]string{
		limiter.LevelQuorum:      "while the store does not answer",
		limiter.LevelLocalQuorum: "while the store does not answer; each data centre counts on its own",
		limiter.LevelOne:         "; write ONE with read ONE: a read may miss what was just recorded, so more than the limit can get through",
	} {
		p := inMemory("sliding-log", 3, time.Hour)
		p.Consistency = limiter.Consistency{Write: levels, Read: levels}
		e := newEngine(t, newFakeStore(), 0, p)
		scope, caveat := e.Promise(e.Policies()[0])
		if scope != limiter.ScopeNone || !strings.Contains(caveat, "within one sync interval") || !strings.HasSuffix(caveat, want) {
			t.Errorf("%s: %s %q", levels, scope, caveat)
		}
	}
	e := newEngine(t, newFakeStore(), 0, inMemory("token-bucket", 3, time.Hour))
	if _, caveat := e.Promise(e.Policies()[0]); !strings.HasSuffix(caveat, "; each data centre counts on its own") {
		t.Errorf("a bucket: %q", caveat)
	}
}

// What can't be kept is refused with a sentence.
func TestLocalIsRefused(t *testing.T) {
	several := inMemory("sliding-log", 3, time.Hour)
	several.Limits = append(several.Limits, limitOf("leaky-bucket", 3))
	found := several.Problems()
	if len(found) != 1 || found[0].Path != "guarantee" || !strings.Contains(found[0].Message, "limits[1], a leaky-bucket, beside") {
		t.Errorf("a bucket beside a log: %v", found)
	}
	e := limiter.New(newFakeStore(), nil)
	err := e.SetPolicies([]limiter.Policy{inMemory("sliding-log", 3, time.Hour)})
	if err == nil || !strings.Contains(err.Error(), `policy "p": guarantee "local"`) {
		t.Errorf("without memory: %v", err)
	}
	e = newEngine(t, newFakeStore(), 0, inMemory("sliding-log", 3, time.Hour))
	_, err = e.Do(t.Context(), &limiter.Call{Op: limiter.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Second})
	if field := (*limiter.FieldError)(nil); !errors.As(err, &field) || field.Field != "reserve_ms" {
		t.Errorf("a reservation: %v", err)
	}
}
