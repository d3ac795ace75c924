package limiter_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// standingLog is a policy of a log whose instances count an event ahead of all keys at once.
func standingLog() limiter.Policy {
	policy := policyOf("sliding-log", 10, time.Minute)
	policy.Leases = limiter.LeasesStanding
	return policy
}

// takeAs takes cost for id and returns the whole answer.
func takeAs(t *testing.T, e *limiter.Engine, id limiter.Identifier, cost int64) limiter.Answer {
	t.Helper()
	a, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpTake, Demands: []limiter.Demand{{Policy: "p", Identifier: id, Cost: cost}}})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Over a log, who was never seen is admitted from memory, twice by an instance that is alone;
// from then on the store is asked, and told.
func TestStandingLogAsksNobodyFirst(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, _ *limiter.Engine) {
		reads, writes := store.counts()
		for i := range 100 {
			d := takeOf(t, e, limiter.Identifier(strconv.Itoa(i)))
			if !d.Leased || d.Used != 1 || d.Remaining != 9 || d.ResetAfter != time.Minute+2*tolerance {
				t.Fatalf("%+v: want the first of ten", d)
			}
		}
		if readsNow, writesNow := store.counts(); readsNow != reads || writesNow != writes {
			t.Errorf("the store was asked: %d reads, %d writes", readsNow-reads, writesNow-writes)
		}
		if d, err := e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: "7"}); err != nil || d.Used != 1 {
			t.Errorf("%+v, %v: want the one that was handed out", d, err)
		}
		for used := int64(2); used <= 10; used++ {
			if d := takeOf(t, e, "7"); d.Leased != (used == 2) || !d.Allowed || d.Used != used {
				t.Errorf("%+v: want %d used, by rows from the third on", d, used)
			}
		}
		if d := takeOf(t, e, "7"); d.Allowed {
			t.Errorf("%+v: the eleventh", d)
		}
	})
}

// Who was decided over by rows gets nothing from memory any more, which would know less.
func TestStandingLogIsNotForWhoHasRows(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
		for used, cost := range []int64{3, 1} {
			if d := takeAs(t, e, "costly", cost); d.Leased || d.Used != 3+int64(used) {
				t.Errorf("%+v: want %d used, by rows", d.Decision, 3+used)
			}
		}
	})
}

// One instance that counts alone decides as the algorithm does, over periods, and with rows that
// are counted ahead.
func TestOneInstanceDecidesAsTheLog(t *testing.T) {
	decidesAsTheLog(t, standingLog(), 200)
	decidesAsTheLog(t, rowsAhead(), 60)
}

// decidesAsTheLog has up to so many callers come some dozen times in a window each, or less.
func decidesAsTheLog(t *testing.T, policy limiter.Policy, callers int) {
	window := policy.Limits[0].Window
	bubble(t, window.String(), func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 2))
		e := toldEngine(t, newFakeStore(), policy)
		running(t, e)
		stand(t, e)
		pure := make(map[limiter.Identifier]*limiter.Machine)
		leased := 0
		for range 3000 {
			time.Sleep(time.Duration(rng.Int64N(int64(window / 150))))
			id := limiter.Identifier(strconv.Itoa(rng.IntN(1 + rng.IntN(callers))))
			if pure[id] == nil {
				pure[id] = limiter.NewMachine(policyOf("sliding-log", 10, window+2*tolerance))
			}
			want, d := pure[id].Do(limiter.OpTake, limiter.InstantOf(time.Now()), 1), takeOf(t, e, id)
			late := (want.RetryAfter - d.RetryAfter).Abs()
			if want.Allowed != d.Allowed || want.Used != d.Used || late > 2*time.Millisecond {
				t.Fatalf("%v: %+v\nwant %+v", time.Now(), d, want)
			}
			if d.Leased {
				leased++
			}
		}
		if leased < 100 {
			t.Errorf("%d of 3000 by what was counted ahead", leased)
		}
	})
}

// Two instances admit the limit together, whether an event was handed out before the other
// filled the key, or is kept for the one that may hand it out.
func TestHighKeysOfALogKnowAllowances(t *testing.T) {
	for _, handedFirst := range []bool{true, false} {
		standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			admitted := 0
			if handedFirst {
				admitted += takeUntil(t, e, 3, notLeased) // and one by rows
				admitted++
			}
			admitted += takeUntil(t, other, 11, isDenied)
			admitted += takeUntil(t, e, 11, isDenied)
			if admitted != 10 {
				t.Errorf("%d admitted", admitted)
			}
			comeLate(t, store, standingLog())
		})
	}
}

// What was handed out at the end of a period counts for a window more, here and elsewhere; and
// by the allowance of the next period nothing is handed out at its very start, when by other
// clocks it is still the one before.
func TestStandingLogFromPeriodToPeriod(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		nearEnd(10 * time.Millisecond)
		if d := mustTake(t, e); !d.Leased {
			t.Fatalf("%+v: want it from memory", d)
		}
		nearEnd(-10 * time.Millisecond)
		if d := takeOf(t, e, "somebody else"); d.Leased {
			t.Errorf("%+v: by an allowance of a period that has not begun by all clocks", d)
		}
		nearEnd(30 * time.Second)
		if taken := takeUntil(t, other, 11, isDenied); taken != 6 {
			t.Errorf("%d beside an allowance of two in each of two periods, want 6", taken)
		}
		if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 7 {
			t.Errorf("%+v, %v: want 7 used, by whom the first was handed out", d, err)
		}
		nearEnd(-2*tolerance - time.Second) // the allowance before has no meaning any more
		if taken := takeUntil(t, e, 11, isDenied); taken != 4 {
			t.Errorf("%d where 6 are used, want 4", taken)
		}
	})
}

// A key that was filled in one period is not for the allowance of the next, whose list of keys
// begins with the one before.
func TestStandingLogIsNotForWhoFilledThePeriodBefore(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		nearEnd(15 * time.Second)
		takeUntil(t, other, 11, isDenied)
		nearEnd(-time.Second)
		takeOf(t, e, "whoever comes next")
		nearEnd(50 * time.Second)
		if d := mustTake(t, e); d.Leased {
			t.Errorf("%+v: by an allowance, where 9 are used", d)
		}
	})
}

// Allowances of all instances are about a fourth of the limit: three of ten, of which the first
// instance has two, and the third none until there is room. Of a smaller limit it leaves one to
// the next.
func TestAllowancesOfALogTogetherAreBounded(t *testing.T) {
	for limit, want := range map[int64][]int{
		3: {0, 0, 0, 0}, 4: {1, 0, 0, 0}, 5: {1, 1, 0, 0}, 8: {1, 1, 0, 0},
		9: {2, 1, 0, 0}, 10: {2, 1, 0, 0}, 13: {2, 1, 1, 0}, 14: {2, 1, 1, 0},
	} {
		policy := standingLog()
		policy.Limits[0].Limit = limit
		bubble(t, strconv.FormatInt(limit, 10), func(t *testing.T) {
			store := newFakeStore()
			var have []int
			for range 4 {
				e := toldEngine(t, store, policy)
				running(t, e)
				stand(t, e)
				n := 0
				for takeOf(t, e, "somebody else").Leased {
					n++
				}
				have = append(have, n)
			}
			if !slices.Equal(have, want) {
				t.Errorf("of %d, instances have %v ahead, want %v", limit, have, want)
			}
		})
	}
}

// Instances that make their allowances at the same time take fewer than one that is alone, rather
// than none.
func TestAllowancesOfALogThatMeet(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		both := []*limiter.Engine{toldEngine(t, store, standingLog()), toldEngine(t, store, standingLog())}
		for _, e := range both {
			running(t, e)
			takeOf(t, e, "whoever comes first")
		}
		store.set(func() { store.writeTakes = 10 * time.Millisecond })
		time.Sleep(2 * time.Second)
		all := 0
		for i, e := range both {
			n := 0
			for takeOf(t, e, "somebody else").Leased {
				n++
			}
			if all += n; n == 0 {
				t.Errorf("instance %d has no allowance", i)
			}
		}
		if all > 3 {
			t.Errorf("%d ahead of a limit of 10, want 3 at most", all)
		}
	})
}

// All that instances may hand out at the end of a period and in the next one fits beside a key
// that is not high, to the last unit.
func TestAllowancesOfTwoPeriodsFitBesideALowKey(t *testing.T) {
	for _, limit := range []int64{4, 5, 9, 10, 13, 14} {
		policy := standingLog()
		policy.Limits[0].Limit = limit
		standing(t, policy, func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
			all := []*limiter.Engine{e}
			for range 4 {
				more := toldEngine(t, store, policy)
				running(t, more)
				stand(t, more)
				all = append(all, more)
			}
			handOut := func(period string) (n int64) {
				for i, e := range all {
					probe := limiter.Identifier(period + strconv.Itoa(i))
					for takeOf(t, e, probe).Leased {
						if mustTake(t, e).Leased {
							n++
						}
					}
				}
				return n
			}
			nearEnd(2 * time.Second)
			before := handOut("first")
			rows := int64(0)
			for rows < limit/2-1 && takeOf(t, other, somebody.Identifier).Allowed {
				rows++
			}
			nearEnd(-3 * tolerance)
			after := handOut("second")
			if sum := before + rows + after; sum > limit || before == 0 || after == 0 {
				t.Errorf("%d, %d by rows, and %d within a window, of %d", before, rows, after, limit)
			}
		})
	}
}

// An event that was handed out is given back by its receipt, on whatever instance that comes,
// and once only.
func TestEventsOfAllowancesAreRefunded(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
			running(t, other)
			by := e
			if elsewhere {
				by = other
			}
			a := takeAs(t, e, somebody.Identifier, 1)
			if !a.Leased || a.Receipt == "" {
				t.Fatalf("%+v: want it from memory, with a receipt", a)
			}
			if err := by.Refund(t.Context(), a.Receipt); err != nil {
				t.Fatal(err)
			}
			if err := by.Refund(t.Context(), a.Receipt); err == nil {
				t.Error("refunded twice")
			}
			time.Sleep(time.Second)
			if d, err := e.Check(t.Context(), somebody); err != nil || d.Used != 0 {
				t.Errorf("%+v, %v: want nothing used", d, err)
			}
			if d := mustTake(t, e); !d.Leased || d.Used != 1 {
				t.Errorf("%+v: want it from memory again", d)
			}
			if taken := takeUntil(t, e, 11, isDenied); taken != 9 {
				t.Errorf("%d more, want 9", taken)
			}
		})
	}
}

// A reset forgets what was handed out before it, and what others may hand out after it goes on
// counting.
func TestResetBesideAnAllowanceOfALog(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		mustTake(t, e)
		time.Sleep(5 * time.Second)
		takeUntil(t, other, 11, isDenied)
		takeUntil(t, e, 11, isDenied)
		time.Sleep(time.Second)
		if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if taken := takeUntil(t, other, 11, isDenied); taken != 8 {
			t.Errorf("%d after a reset beside an allowance of two, want 8", taken)
		}
		if taken := takeUntil(t, e, 11, isDenied); taken > 2 { // none, if it knows of an allowance of the other by then
			t.Errorf("%d after that by whom the last are kept for, want 2 at most", taken)
		}
	})
}

// An event that is handed out while the key is reset elsewhere is counted all the same.
func TestResetWhileAnEventIsHandedOut(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		if err := other.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		if d := mustTake(t, e); !d.Leased { // nobody has told it
			t.Fatalf("%+v: want it from memory", d)
		}
		time.Sleep(time.Second)
		if taken := takeUntil(t, e, 11, isDenied); taken != 9 {
			t.Errorf("%d after the first, want 9", taken)
		}
	})
}

// What was handed out before a reset is forgotten, and nothing is handed out that would be.
func TestResetOfWhatWasHandedOut(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
		for range 5 {
			mustTake(t, e)
		}
		time.Sleep(5 * time.Second)
		for _, demand := range []limiter.Demand{somebody, {Policy: "p", Identifier: "somebody else"}} {
			if err := e.Reset(t.Context(), "p", demand.Identifier); err != nil {
				t.Fatal(err)
			}
			for used := range int64(10) {
				if d := takeOf(t, e, demand.Identifier); !d.Allowed || d.Used != used+1 {
					t.Errorf("%+v: want unit %d after a reset", d, used+1)
				}
			}
			if d := takeOf(t, e, demand.Identifier); d.Allowed {
				t.Errorf("%+v: the eleventh", d)
			}
		}
	})
}

// What a process counts as not handed out when it finds a key high is not handed out later.
func TestAllowanceOfALogEndsForAHighKey(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, _ *fakeStore, e, _ *limiter.Engine) {
		for _, cost := range []int64{5, 5} {
			if a := takeAs(t, e, somebody.Identifier, cost); !a.Allowed || a.Leased {
				t.Errorf("%+v: want it by rows", a.Decision)
			}
		}
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("%+v: the eleventh", d)
		}
	})
}

// An allowance counts elsewhere until what was handed out at its end is over by all clocks,
// and so long a key that was high is not for the allowances that come.
func TestAllowanceOfALogLastsByAllClocks(t *testing.T) {
	standing(t, standingLog(), func(t *testing.T, store *fakeStore, e, other *limiter.Engine) {
		nearEnd(10 * time.Millisecond)
		if d := mustTake(t, e); !d.Leased {
			t.Fatalf("%+v: want it from memory", d)
		}
		nearEnd(-10 * time.Millisecond)
		nearEnd(-10 * time.Millisecond)
		if taken := takeUntil(t, other, 11, isDenied); taken != 4 {
			t.Errorf("%d beside allowances of two of this period, the last one, and one that counts still, want 4", taken)
		}
	})
	bubble(t, "notes", func(t *testing.T) {
		store := newFakeStore()
		slow := newEngine(t, store, 0, standingLog())
		nearEnd(10 * time.Millisecond)
		takeUntil(t, slow, 11, isDenied)
		nearEnd(-10 * time.Millisecond)
		nearEnd(10 * time.Millisecond)
		fast := newEngine(t, store, 2*tolerance-20*time.Millisecond, standingLog())
		running(t, fast)
		takeOf(t, fast, "whoever comes first")
		time.Sleep(1100 * time.Millisecond)
		if d := mustTake(t, fast); d.Leased {
			t.Errorf("%+v: by an allowance, where a key was filled in a period that may count still", d)
		}
	})
}

// Who finds more high keys than are noted counts all allowances with every key, and its own
// event by event all the same.
func TestTooManyHighKeysOfALog(t *testing.T) {
	policy := standingLog()
	policy.Limits[0].Window = time.Hour
	standing(t, policy, func(t *testing.T, _ *fakeStore, e, other *limiter.Engine) {
		running(t, other)
		stand(t, other)
		for i := range 1<<12 + 1 {
			takeAs(t, e, limiter.Identifier(strconv.Itoa(i)), 5)
		}
		taken := 0
		for takeOf(t, e, "somebody else").Allowed {
			taken++
		}
		if taken != 9 {
			t.Errorf("%d admitted beside another's allowance, want 9", taken)
		}
		if d := takeOf(t, other, "somebody else"); !d.Leased {
			t.Errorf("%+v: want the tenth, by that", d)
		}
		if d := takeOf(t, other, "somebody else"); d.Allowed {
			t.Errorf("%+v: the eleventh", d)
		}
	})
}

// A denial beside others' allowances is remembered as long as any other.
func TestDenialBesideAllowancesOfALogIsRemembered(t *testing.T) {
	policy := standingLog()
	policy.Limits[0].Window = time.Hour
	standing(t, policy, func(t *testing.T, store *fakeStore, _, other *limiter.Engine) {
		if taken := takeUntil(t, other, 11, isDenied); taken != 8 {
			t.Fatalf("%d beside an allowance of two", taken)
		}
		time.Sleep(3 * time.Second)
		mustTake(t, other)
		reads, _ := store.counts()
		for range 8 {
			time.Sleep(time.Second)
			if d := mustTake(t, other); d.Allowed || d.Used != 10 {
				t.Errorf("%+v: want it denied", d)
			}
		}
		if now, _ := store.counts(); now > reads+1 {
			t.Errorf("%d reads for 8 denials", now-reads)
		}
	})
}

// What is handed out is known event by event, for a bounded number of them.
func TestHandedIsBounded(t *testing.T) {
	h, ids := new(limiter.Handed), limiter.NewEventIDs()
	keys := make([]limiter.Key, 0, 1_300_000)
	for i := range cap(keys) {
		var sum [limiter.KeySize]byte
		for j := range 8 {
			sum[j] = byte(i >> (8 * j))
			sum[limiter.KeySize-1-j] = sum[j]
		}
		keys = append(keys, limiter.KeyFrom(sum))
	}
	at, handed := limiter.InstantOf(time.Now()), 0
	for i := range keys {
		if h.Add(keys[i], ids(at), 1, 2) {
			handed++
		}
	}
	if handed != 1<<20 {
		t.Errorf("%d events, want 2^20", handed)
	}
	first, last := keys[0], keys[len(keys)-1]
	if events := h.Of(first); len(events) != 1 || events[0].At != at || events[0].Cost != 1 {
		t.Errorf("%+v", events)
	}
	if h.Add(first, ids(at), 1, 2) || len(h.Of(last)) > 0 {
		t.Error("handed out beyond the bound")
	}
	h.End(last)
	h.End(first)
	if h.GiveBack(first, h.Of(first)[0].ID); h.Add(first, ids(at), 1, 2) {
		t.Error("handed out after the end, of which there was no room to tell")
	}
}

// Of a key no more than most is handed out, nothing once it has ended, and what is given back
// can be handed out again.
func TestHanded(t *testing.T) {
	h, ids, key := new(limiter.Handed), limiter.NewEventIDs(), limiter.KeyFrom([limiter.KeySize]byte{1})
	first, second := ids(1000), ids(2000)
	if !h.Add(key, first, 2, 3) || h.Add(key, second, 2, 3) || !h.Add(key, second, 1, 3) {
		t.Error("want 3 in all")
	}
	if h.GiveBack(key, ids(3000)) || !h.GiveBack(key, first) || len(h.Of(key)) != 1 {
		t.Errorf("%+v: want the second", h.Of(key))
	}
	if !h.Add(key, ids(3000), 2, 3) {
		t.Error("what was given back is not handed out")
	}
	for range 2 << 14 { // the place of what was given back is used again
		if id := ids(3000); !h.GiveBack(key, second) || !h.Add(key, id, 1, 3) {
			t.Fatal("no room")
		} else {
			second = id
		}
	}
	h.GiveBack(key, second)
	h.End(key)
	if events := h.Of(key); h.Add(key, ids(4000), 1, 3) || len(events) != 1 || events[0].Cost != 2 {
		t.Errorf("%+v: want what was handed out before the end", events)
	}
}
