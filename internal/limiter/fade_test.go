package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// faded calls test as early does, at the start of a window whose previous one is full.
func faded(t *testing.T, test func(t *testing.T, store *fakeStore, e, other *limiter.Engine, pure *limiter.Machine)) {
	early(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) { inFaded(t, store, policy, test) })
}

// fadedRows is faded for running totals alone: what is taken back from them is gone at once.
func fadedRows(t *testing.T, test func(t *testing.T, store *fakeStore, e, other *limiter.Engine, pure *limiter.Machine)) {
	bubble(t, "", func(t *testing.T) { inFaded(t, newFakeStore(), earlyRows(time.Minute), test) })
}

// earlyRows returns a sliding tail in rows whose leases are early.
func earlyRows(window time.Duration) limiter.Policy {
	policy := policyOf("sliding-tail", 1000, window)
	policy.Leases, policy.Counting = limiter.LeasesEarly, limiter.CountingRows
	return policy
}

// inFaded fills a window of a policy at one engine and calls test at the start of the
// next, with another engine of the same store.
func inFaded(
	t *testing.T, store *fakeStore, policy limiter.Policy,
	test func(t *testing.T, store *fakeStore, e, other *limiter.Engine, pure *limiter.Machine),
) {
	t.Helper()
	e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
	running(t, e)
	running(t, other)
	pure := limiter.NewMachine(policy)
	for range 1000 {
		mustTake(t, e)
		pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1)
	}
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	test(t, store, e, other, pure)
}

// A caller who asks again and again gets what fades of the previous window when it has,
// as if nothing was counted ahead, for a tenth of the requests.
func TestFadingRoomIsCountedAhead(t *testing.T) {
	fadedRows(t, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine, pure *limiter.Machine) {
		reads, writes := store.counts()
		admitted := 0
		for range 30 * 200 {
			time.Sleep(5 * time.Millisecond)
			want := pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1)
			d := mustTake(t, e)
			if d.Allowed != want.Allowed || d.Used != want.Used {
				t.Fatalf("%v: allowed %v of %d used, want %v of %d", time.Now(), d.Allowed, d.Used, want.Allowed, want.Used)
			}
			if d.Allowed {
				admitted++
			}
		}
		readsNow, writesNow := store.counts()
		if asked := readsNow - reads + writesNow - writes; admitted != 500 || asked > 150 {
			t.Errorf("%d requests for %d units, want 500 for 150 at most", asked, admitted)
		}
	})
}

// What is counted ahead fits before the window ends: nothing of it is left for the next.
func TestNoMoreIsCountedAheadThanFadesInTheWindow(t *testing.T) {
	faded(t, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine, pure *limiter.Machine) {
		admitted := 0
		for range 63 * 50 {
			time.Sleep(20 * time.Millisecond)
			if pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1).Allowed {
				admitted--
			}
			if mustTake(t, e).Allowed {
				admitted++
			}
		}
		if admitted < -1 {
			t.Errorf("%d units were not handed out", -admitted)
		}
	})
}

// Two instances that count ahead what fades let no more through than there is room for at
// any moment, nor much less.
func TestFadingRoomOfTwoInstances(t *testing.T) {
	faded(t, func(t *testing.T, store *fakeStore, e, other *limiter.Engine, _ *limiter.Machine) {
		start, admitted := time.Now(), 0
		reads, writes := store.counts()
		for time.Since(start) < time.Minute-5*time.Millisecond {
			time.Sleep(5 * time.Millisecond)
			for _, e := range []*limiter.Engine{e, other} {
				if mustTake(t, e).Allowed {
					admitted++
				}
			}
			left := time.Minute - time.Since(start)
			if tail := int(1000 * left / time.Minute); admitted+tail > 1000 {
				t.Fatalf("after %v: %d admitted beside %d", time.Since(start), admitted, tail)
			}
		}
		readsNow, writesNow := store.counts()
		if asked := readsNow - reads + writesNow - writes; admitted < 960 || asked > 800 {
			t.Errorf("%d requests for %d units, want 960 at least for 800 at most", asked, admitted)
		}
	})
}

// Under late leases what fades is for whoever asks first.
func TestLateLeasesCountNothingAheadThatFades(t *testing.T) {
	leased(t, func(t *testing.T, store *fakeStore, policy limiter.Policy) {
		inFaded(t, store, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine, pure *limiter.Machine) {
			for range 200 {
				time.Sleep(5 * time.Millisecond)
				mustTake(t, e)
				pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1)
			}
			time.Sleep(2 * time.Second) // counters are subtracted from later
			want := pure.Do(limiter.OpCheck, limiter.InstantOf(time.Now()), 1).Used
			if d, err := other.Check(t.Context(), somebody); err != nil || d.Used != want {
				t.Errorf("%d used, %v; want %d", d.Used, err, want)
			}
		})
	})
}

// Nor do they count more ahead than is left by then in a window that others took meanwhile.
func TestLateLeasesBesideOthersCountNothingAheadThatFades(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		policy := policyOf("sliding-tail", 1000, time.Minute)
		policy.Counting = limiter.CountingRows
		inFaded(t, newFakeStore(), policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine, _ *limiter.Machine) {
			time.Sleep(40 * time.Second)
			takeUntil(t, e, 20, isLeased)
			takeUntil(t, other, 1000, func(d limiter.Decision) bool { return d.Used >= 995 })
			takeUntil(t, e, 100, func(d limiter.Decision) bool { return !d.Leased })
			if d, err := other.Check(t.Context(), somebody); err != nil || d.Used < 995 || d.Used > 1000 {
				t.Errorf("%d used, %v; want 1000 at most", d.Used, err)
			}
		})
	})
}

// What is counted ahead of its time, and nobody asks for, is given back.
func TestFadingRoomIsGivenBack(t *testing.T) {
	faded(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine, pure *limiter.Machine) {
		for range 2 * 200 {
			time.Sleep(5 * time.Millisecond)
			mustTake(t, e)
			pure.Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1)
		}
		check := func() (used, want int64) {
			d, err := other.Check(t.Context(), somebody)
			if err != nil {
				t.Fatal(err)
			}
			return d.Used, pure.Do(limiter.OpCheck, limiter.InstantOf(time.Now()), 1).Used
		}
		if used, want := check(); used <= want || used > want+1000/64 {
			t.Errorf("%d used while a lease lasts, want more than %d, by %d at most", used, want, 1000/64)
		}
		time.Sleep(8 * time.Second)
		if used, want := check(); used != want {
			t.Errorf("%d used after it, want %d", used, want)
		}
	})
}

// What was given back elsewhere is handed out as soon as that is heard of, though a lease
// knows of no room; until then that denies without the store being asked.
func TestRefundEndsADenialByALease(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		running(t, e)
		var receipt string
		for range 1000 {
			answer, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{somebody}})
			if err != nil || !answer.Allowed {
				t.Fatalf("%+v, %v", answer, err)
			}
			receipt = answer.Receipt
		}
		time.Sleep(time.Hour + 3700*time.Millisecond) // a unit fades in 3.6 s
		for mustTake(t, e).Allowed {
		}
		time.Sleep(time.Second)
		reads, _ := store.counts()
		if d := mustTake(t, e); d.Allowed || !d.Remembered || d.RetryAfter < 2*time.Second {
			t.Fatalf("%+v: want a denial from memory, for 2.5 s", d)
		}
		if now, _ := store.counts(); now != reads {
			t.Errorf("%d reads for it, want none", now-reads)
		}
		if err := other.Refund(t.Context(), receipt); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%+v: want the unit that was given back", d)
		}
	})
}

// Of another instance's units in flight nobody knows whether they stay: what a lease knows
// of no room is asked for again after a store timeout.
func TestDenialByALeaseBesideOthersIsShort(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		for range 2000 {
			mustTake(t, e)
			mustTake(t, other)
		}
		time.Sleep(time.Hour + 3700*time.Millisecond)
		for mustTake(t, e).Allowed {
		}
		reads, _ := store.counts()
		time.Sleep(timeout + time.Millisecond)
		mustTake(t, e)
		if now, _ := store.counts(); now == reads {
			t.Error("nothing was read for a denial that others' units in flight may have caused")
		}
	})
}

// A unit that is taken back with a call that falls leaves its room, whatever the lease
// knows that was granted with it.
func TestRoomOfACallThatFalls(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		policy, never := earlyRows(time.Minute), policyOf("fixed-window", 0, time.Minute)
		never.Name = "never"
		e := toldEngine(t, newFakeStore(), policy, never)
		running(t, e)
		for range 1000 {
			mustTake(t, e)
		}
		time.Sleep(time.Minute + time.Millisecond) // one unit has faded
		both := []limiter.Demand{somebody, {Policy: "never", Identifier: somebody.Identifier}}
		if answer, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: both}); err != nil || answer.Allowed {
			t.Fatalf("%+v, %v", answer, err)
		}
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%+v: want the unit that was taken back", d)
		}
	})
}

// So does one whose call may not have been confirmed.
func TestRoomOfACallInDoubt(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		policy, events := earlyRows(time.Minute), policyOf("sliding-log", 10, time.Minute)
		events.Name = "events"
		store := newFakeStore()
		e := toldEngine(t, store, policy, events)
		running(t, e)
		for range 1000 {
			mustTake(t, e)
		}
		time.Sleep(time.Minute + time.Millisecond) // one unit has faded
		store.set(func() { store.onWriteAll = func([]limiter.Write) error { return limiter.ErrUnavailable } })
		both := []limiter.Demand{somebody, {Policy: "events", Identifier: somebody.Identifier}}
		if answer, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: both}); err == nil {
			t.Fatalf("%+v", answer)
		}
		store.set(func() { store.onWriteAll = nil })
		time.Sleep(time.Millisecond)
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%+v: want the unit that was taken back", d)
		}
	})
}

// A record counts whatever the limit, and more than a unit waits for as much room, however
// much a lease holds.
func TestRecordsAndCostsBesideFadingRoom(t *testing.T) {
	fadedRows(t, func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine, pure *limiter.Machine) {
		for i := range 5 * 200 {
			time.Sleep(5 * time.Millisecond)
			op, cost := limiter.OpTake, int64(1)
			switch {
			case i%50 == 10:
				op = limiter.OpRecord
			case i%50 > 20:
				cost = 3
			}
			want := pure.Do(op, limiter.InstantOf(time.Now()), cost)
			demand := somebody
			demand.Cost = cost
			answer, err := e.Do(t.Context(), &limiter.Call{Op: op, Demands: []limiter.Demand{demand}})
			if err != nil || answer.Allowed != want.Allowed || answer.Recorded != want.Recorded || answer.Used != want.Used {
				t.Fatalf("%d: %v of %d: %+v, %v; want %+v", i, op, cost, answer.Decision, err, want)
			}
		}
	})
}

// A record that a lease answers is in what is told next, though a denial is remembered
// that knows nothing of it.
func TestRecordBesideARememberedDenial(t *testing.T) {
	fadedRows(t, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine, _ *limiter.Machine) {
		time.Sleep(4 * time.Second)
		mustTake(t, other)
		takeUntil(t, e, 100, isDenied)
		for range 2 { // the first denial takes back what it wrote, the second only reads
			time.Sleep(timeout + time.Millisecond)
			takeUntil(t, e, 100, func(d limiter.Decision) bool { return !d.Allowed && !d.Remembered })
		}
		if d := mustTake(t, e); !d.Remembered {
			t.Fatalf("%+v: want a denial that is remembered", d)
		}
		record, err := e.Record(t.Context(), somebody)
		if err != nil || !record.Leased {
			t.Fatalf("%+v, %v: want a record by a lease", record, err)
		}
		if d := mustTake(t, e); d.Used != record.Used {
			t.Errorf("%d used after a record that left %d", d.Used, record.Used)
		}
	})
}

// A record of more than a lease holds is written, though the lease denies.
func TestRecordOfMoreThanALeaseThatDenies(t *testing.T) {
	fadedRows(t, func(t *testing.T, store *fakeStore, e, _ *limiter.Engine, _ *limiter.Machine) {
		time.Sleep(100 * time.Millisecond) // a unit fades
		takeUntil(t, e, 100, isDenied)
		if d := mustTake(t, e); !d.Remembered {
			t.Fatalf("%+v: want a denial that is remembered", d)
		}
		demand := somebody
		demand.Cost = 100
		if d, err := e.Record(t.Context(), demand); err != nil || d.Recorded != limiter.RecordedYes || d.Used < 1099 {
			t.Errorf("%+v, %v: want all of it recorded", d, err)
		}
	})
}
