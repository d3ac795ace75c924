package limiter_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// writtenFrom returns a policy of one limit whose keys are in memory alone below a share of it.
func writtenFrom(percent int, algorithm string, limit int64, window time.Duration) policy.Policy {
	p := inMemory(algorithm, limit, window)
	p.WriteFrom = percent
	return p
}

// callerOf returns the demand of one of many callers.
func callerOf(i int) limiter.Demand {
	return limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint("caller ", i))}
}

// TestCallersThatComeOnceCostNothing holds that below write_from a key costs the store no request, and that all of its units
// are written once it has used that much.
func TestCallersThatComeOnceCostNothing(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p := newFakeStore(), writtenFrom(10, algorithm, 100, time.Minute)
			e := tenant(t, s, nil, &tenancy{}, p)
			const callers = 2000
			for i := range callers {
				if d, err := e.Take(t.Context(), callerOf(i)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
			}
			if allowed := takes(t, e, 9); allowed != 9 {
				t.Errorf("%d of 9", allowed)
			}
			if used := mustCheck(t, e).Used; used != 9 {
				t.Errorf("%d used, want 9", used)
			}
			nextSync()
			e.Flush(t.Context())
			if reads, writes := s.counts(); reads+writes > 0 {
				t.Errorf("%d reads and %d writes for %d callers that came once", reads, writes, callers)
			}
			if n := e.Remembered(); n != callers+1 {
				t.Errorf("%d keys are remembered, want %d", n, callers+1)
			}
			takes(t, e, 1)
			nextSync()
			if reads, writes := s.counts(); reads > 0 || writes != 1 {
				t.Errorf("%d reads and %d writes for a caller with a tenth of its limit", reads, writes)
			}
			takes(t, e, 1)
			nextSync()
			if used := inStore(t, s, p); used != 11 {
				t.Errorf("%d units are in the store, want 11", used)
			}
			time.Sleep(3 * time.Minute)
			_, before := s.counts()
			if allowed := takes(t, e, 9); allowed != 9 {
				t.Errorf("%d of 9 in the next window", allowed)
			}
			nextSync()
			if _, writes := s.counts(); writes != before {
				t.Errorf("%d writes in the next window", writes-before)
			}
		})
	}
}

// TestSmallKeysAreWrittenFirst holds that every call that is no plain take sees the units that are in memory alone, wherever
// it is asked, and that the next owner finds all.
func TestSmallKeysAreWrittenFirst(t *testing.T) {
	take := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}}
	calls := map[string]struct {
		call func(t *testing.T, e *limiter.Engine, receipt string)
		used int64 // of four, afterwards
	}{
		"reset": {func(t *testing.T, e *limiter.Engine, _ string) { mustReset(t, e) }, 0},
		"refund": {func(t *testing.T, e *limiter.Engine, receipt string) {
			if err := e.Refund(t.Context(), receipt); err != nil {
				t.Fatal(err)
			}
		}, 3},
		"idempotency key": {func(t *testing.T, e *limiter.Engine, _ string) {
			keyed := take
			keyed.IdempotencyKey = "a"
			if a := mustDo(t, e, keyed); a.Used != 5 {
				t.Errorf("%d used, want 5", a.Used)
			}
		}, 5},
		"reservation": {func(t *testing.T, e *limiter.Engine, _ string) {
			held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
			mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation})
		}, 5},
		"override": {func(t *testing.T, e *limiter.Engine, _ string) {
			override(t, e, otherLimit(e.Policies()[0], 6), time.Hour)
			if d := mustTake(t, e); d.Used != 5 {
				t.Errorf("%d used, want 5", d.Used)
			}
		}, 5},
		"another policy": {func(t *testing.T, e *limiter.Engine, _ string) {
			reloaded := e.Policies()[0]
			changed := *reloaded
			changed.Description, changed.Consistency = "the same again", policy.Consistency{}
			if err := e.SetPolicies([]policy.Policy{changed}); err != nil {
				t.Fatal(err)
			}
			if d := mustTake(t, e); d.Used != 5 {
				t.Errorf("%d used, want 5", d.Used)
			}
		}, 5},
	}
	for _, algorithm := range []string{"sliding-log", "fixed-window", "sliding-tail", "sliding-window"} {
		for name, c := range calls {
			for _, elsewhere := range []bool{false, true} {
				bubble(t, fmt.Sprintf("%s/%s/elsewhere %v", algorithm, name, elsewhere), func(t *testing.T) {
					s, feed, p := newFakeStore(), newFakeFeed(), writtenFrom(50, algorithm, 30, 24*time.Hour)
					mine := tenant(t, s, feed, &tenancy{}, p)
					at := mine
					if elsewhere {
						at = asker(t, s, feed, mine, p)
					}
					takes(t, mine, 3)
					answer := mustDo(t, at, take)
					if n := mine.Behind().Written; n > 0 || inStore(t, s, p) > 0 {
						t.Fatalf("%d writes: the key is not small", n)
					}
					c.call(t, at, answer.Receipt)
					time.Sleep(3 * time.Second)
					if used := mustCheck(t, mine).Used; used != c.used {
						t.Errorf("%d used, want %d", used, c.used)
					}
					if err := mine.Unload(t.Context(), func(store.Key) bool { return true }); err != nil {
						t.Fatal(err)
					}
					if used := inStore(t, s, p); used != c.used {
						t.Errorf("%d units are in the store, want %d", used, c.used)
					}
				})
			}
		}
	}
}

// TestSmallKeysBeforeAClockIsSetBack holds that an owner whose clock was set back writes the units of a small key before it
// reads the key again.
func TestSmallKeysBeforeAClockIsSetBack(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			var ahead atomic.Int64
			ahead.Store(int64(time.Minute))
			e := instanceWith(t, newFakeStore(), &limiter.Options{
				Owners: &owners{term: &tenancy{}}, Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			}, writtenFrom(50, algorithm, 30, 24*time.Hour))
			takes(t, e, 3)
			ahead.Store(0)
			if used := mustCheck(t, e).Used; used != 3 {
				t.Errorf("%d used, want 3", used)
			}
		})
	}
}

// TestSmallKeysFallOutOfMemory holds that small keys are written before they are dropped from memory, so that no limit is
// exceeded, however few keys have room, and no unit is counted twice.
func TestSmallKeysFallOutOfMemory(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			const limit, callers, asked, most = 4, 600, 6, 512
			s, p := newFakeStore(), writtenFrom(50, algorithm, limit, 24*time.Hour)
			e := instanceWith(t, s, &limiter.Options{MaxKeys: most, Owners: &owners{term: &tenancy{}}}, p)
			var admitted [callers]atomic.Int64
			for range asked {
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						d, err := e.Take(t.Context(), callerOf(i))
						if err != nil {
							t.Error(err)
						}
						if d.Allowed {
							admitted[i].Add(1)
						}
					})
				}
				all.Wait()
				if n := e.Remembered(); n > most {
					t.Errorf("%d keys are remembered, want %d at most", n, most)
				}
				nextSync()
			}
			for i := range admitted {
				if n := admitted[i].Load(); n != limit {
					t.Errorf("caller %d has %d units, limit %d", i, n, limit)
				}
			}
		})
	}
}

// TestSmallKeysThatAreOverAreDropped holds that keys whose windows are over make room without a write.
func TestSmallKeysThatAreOverAreDropped(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p := newFakeStore(), writtenFrom(50, algorithm, 10, time.Minute)
			e := instanceWith(t, s, &limiter.Options{MaxKeys: 4096, Owners: &owners{term: &tenancy{}}}, p)
			for i := range 10_000 {
				if d, err := e.Take(t.Context(), callerOf(i)); err != nil || !d.Allowed {
					t.Fatal(d, err)
				}
				time.Sleep(200 * time.Millisecond)
			}
			nextSync()
			if reads, writes := s.counts(); reads+writes > 0 || e.Remembered() > 4096 {
				t.Errorf("%d reads, %d writes, %d keys", reads, writes, e.Remembered())
			}
		})
	}
}

// TestSmallKeysStayWhileTheyCanNotBeWritten holds that no unit is lost when the store takes none: keys stay in memory, and
// new ones are not kept in memory alone.
func TestSmallKeysStayWhileTheyCanNotBeWritten(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		const most = 2048
		s, p := newFakeStore(), writtenFrom(50, "fixed-window", 10, 24*time.Hour)
		e := instanceWith(t, s, &limiter.Options{MaxKeys: most, Owners: &owners{term: &tenancy{}}}, p)
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		admitted := 0
		for i := range 2 * most {
			if d, err := e.Take(t.Context(), callerOf(i)); err == nil && d.Allowed {
				admitted++
			}
		}
		time.Sleep(10 * time.Second)
		if lag := e.Behind(); lag.Waiting < most/2 || e.Remembered() > most {
			t.Errorf("%+v, and %d keys in memory", lag, e.Remembered())
		}
		s.set(func() { s.onWrite = nil })
		if err := e.Unload(t.Context(), func(store.Key) bool { return true }); err != nil {
			t.Fatal(err)
		}
		next, stored := instance(t, s, nil, p), 0
		for i := range 2 * most {
			stored += int(usedBy(t, next, callerOf(i)))
		}
		if stored != admitted || admitted < most {
			t.Errorf("%d units are in the store, of %d", stored, admitted)
		}
	})
}

// TestUnload holds that an owner that is about to lose keys writes them, and that none of them becomes small until Unload is
// called without keys that move.
func TestUnload(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p := newFakeStore(), writtenFrom(50, algorithm, 30, 24*time.Hour)
			s.writeTakes = 5 * time.Millisecond
			e := tenant(t, s, nil, &tenancy{}, p)
			takes(t, e, 3)
			if !e.MayUnload() {
				t.Error("there is nothing to unload")
			}
			if err := e.Unload(t.Context(), func(store.Key) bool { return false }); err != nil {
				t.Fatal(err)
			}
			if _, writes := s.counts(); writes > 0 {
				t.Errorf("%d writes of a key that stays", writes)
			}
			if err := e.Unload(t.Context(), func(store.Key) bool { return true }); err != nil {
				t.Fatal(err)
			}
			if used := inStore(t, s, p); used != 3 {
				t.Errorf("%d units are in the store, want 3", used)
			}
			if d, err := e.Take(t.Context(), callerOf(1)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			nextSync()
			_, before := s.counts()
			if before != 2 {
				t.Errorf("%d writes, want one of each key that moves", before)
			}
			if err := e.Unload(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if d, err := e.Take(t.Context(), callerOf(2)); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
			nextSync()
			if _, writes := s.counts(); writes != before {
				t.Errorf("%d more writes of a key that stays", writes-before)
			}
		})
	}
	bubble(t, "the store takes nothing", func(t *testing.T) {
		s := newFakeStore()
		e := tenant(t, s, nil, &tenancy{}, writtenFrom(50, "sliding-log", 30, 24*time.Hour))
		takes(t, e, 3)
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		if err := e.Unload(t.Context(), func(store.Key) bool { return true }); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestSmallKeysEndWithTheirTerm holds that a unit is admitted only if the end of the term finds it, and that all are
// written then.
func TestSmallKeysEndWithTheirTerm(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p, term := newFakeStore(), writtenFrom(50, algorithm, 30, 24*time.Hour), &tenancy{}
			e := tenant(t, s, nil, term, p)
			takes(t, e, 2)
			term.set(func() { term.ended = owner.ErrTermEnded })
			_, err := e.Take(t.Context(), callerOf(1))
			var failed *count.StoreError
			if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
				t.Errorf("the error is %v, want one that says unknown", err)
			}
			e.Flush(t.Context())
			if used := inStore(t, s, p); used != 2 {
				t.Errorf("%d units are in the store, want 2", used)
			}
		})
	}
}

// TestSmallKeysOfAnEarlierTerm holds that a key in memory alone is not new to the owner's next term.
func TestSmallKeysOfAnEarlierTerm(t *testing.T) {
	for _, algorithm := range writtenFirst() {
		bubble(t, algorithm, func(t *testing.T) {
			s, p, of := newFakeStore(), writtenFrom(50, algorithm, 4, 24*time.Hour), &owners{term: &tenancy{}}
			e := instanceWith(t, s, &limiter.Options{StoreTimeout: timeout, ClockTolerance: tolerance, Owners: of}, p)
			takes(t, e, 1)
			of.term = &tenancy{}
			if allowed := takes(t, e, 5); allowed != 3 {
				t.Errorf("%d more of 4", allowed)
			}
		})
	}
}

// TestWriteFromOvershootIsBounded kills owner after owner of a key, and holds that all of them together admit no more than the
// limit and, for each dead owner, its share write_from and the units of an interval and two store timeouts.
func TestWriteFromOvershootIsBounded(t *testing.T) {
	const runs, stretch = 60, demand.DefaultSyncInterval + 2*timeout
	beyond := 0
	for seed := range uint64(runs) {
		bubble(t, fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			all := writtenFirst()
			limit, percent := 2+rnd.Int64N(40), 1+rnd.IntN(policy.MaxWriteFrom)
			p := writtenFrom(percent, all[seed%uint64(len(all))], limit, 31*24*time.Hour)
			small := max(1, limit*int64(percent)/100)
			s := newFakeStore()
			s.readTakes, s.writeTakes = upTo(rnd, 100*time.Millisecond), upTo(rnd, 100*time.Millisecond)
			total, lost := int64(0), int64(0)
			for range 1 + rnd.IntN(5) {
				mine, before := &partOff{Store: s}, inStore(t, s, p)
				term := &tenancy{noted: make(map[store.Key]bool)}
				if before > 0 { // the owner knows that the key is counted
					term.noted = nil
				}
				e := tenant(t, mine, nil, knows(before > 0, term), p)
				pace, lives := time.Millisecond<<rnd.IntN(11), upTo(rnd, 5*time.Second)
				admitted, late := takesUntilParted(t, e, mine, rnd, pace, lives, stretch)
				unwritten := admitted - (inStore(t, s, p) - before)
				if unwritten > min(limit, late+small) {
					t.Errorf("%d units are lost, of %d that were admitted just before, and %d (replay: seed %d)", unwritten, late, small, seed)
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

// knows returns a term under which a key is new unless it is counted.
func knows(counted bool, term *tenancy) owner.Term {
	if counted {
		return &sole{}
	}
	return term
}

// TestWriteFromIsRefused holds that write_from is refused with a sentence where it can't be.
func TestWriteFromIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*policy.Policy)
		want   string
	}{
		"as counted": {func(p *policy.Policy) { p.Guarantee = "" },
			`under guarantee "counted" every unit is written before it is admitted: remove write_from, or use guarantee "local"`},
		"too large": {func(p *policy.Policy) { p.WriteFrom = 51 }, "51% is out of range: use 1% to 50%, such as 10%"},
		"a conversion": {func(p *policy.Policy) { p.Limits[0].Algorithm = "conversion" },
			"it is for logs, windows and tails, and limits[0] is a conversion: remove write_from, or use another algorithm"},
		"a bucket": {func(p *policy.Policy) { p.Limits[0].Algorithm = "token-bucket" },
			"it is for logs, windows and tails, and limits[0] is a token-bucket: remove write_from, or use another algorithm"},
	} {
		t.Run(name, func(t *testing.T) {
			p := writtenFrom(10, "sliding-log", 3, time.Hour)
			c.change(&p)
			found := p.Problems()
			if len(found) != 1 || found[0].Path != "write_from" || found[0].Message != c.want {
				t.Errorf("%v, want %q", found, c.want)
			}
		})
	}
}
