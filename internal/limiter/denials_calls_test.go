package limiter_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// requests returns how many there were.
func (f *fakeStore) requests() int {
	reads, writes := f.counts()
	return reads + writes
}

// overLimit returns an engine of p, of which somebody is known to be over the limit, and
// of q, of which nobody is.
func overLimit(t *testing.T, store *fakeStore, change func(p, q *policy.Policy)) *limiter.Engine {
	t.Helper()
	p, q := policyOf("sliding-log", 3, 8*time.Second), policyOf("sliding-log", 3, 8*time.Second)
	q.Name = "q"
	if change != nil {
		change(&p, &q)
	}
	e := toldEngine(t, store, p, q)
	mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "first"})
	for range 2 {
		mustTake(t, e)
	}
	time.Sleep(2 * time.Second)
	for range 2 {
		mustTake(t, e)
	}
	return e
}

// One demand that is known to have no room denies all of its call without a write, whatever the
// call is made of: nobody asks for that demand again, only for what is to be told of the
// others, and for what an idempotency key was used for before.
func TestCallsAreDeniedFromMemory(t *testing.T) {
	beside := limiter.Demand{Policy: "q", Identifier: "b"}
	take := func(demands ...limiter.Demand) limiter.Call {
		return limiter.Call{Op: count.OpTake, Demands: demands}
	}
	once := func(call limiter.Call) limiter.Call { call.IdempotencyKey = "k"; return call }
	reserve := func(call limiter.Call) limiter.Call {
		call.Op, call.Reserve = count.OpCheck, time.Second
		return call
	}
	check := func(call limiter.Call) limiter.Call { call.Op = count.OpCheck; return call }
	for _, c := range []struct {
		name string
		call limiter.Call
		asks int
	}{
		{"two demands", take(somebody, beside), 1},
		{"two demands, the second denies", take(beside, somebody), 1},
		{"a check of two", check(take(somebody, beside)), 1},
		{"with an idempotency key", once(take(somebody)), 1},
		{"two demands with an idempotency key", once(take(somebody, beside)), 2},
		{"a reservation", reserve(take(somebody)), 0},
		{"a reservation of two", reserve(take(somebody, beside)), 1},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store := newFakeStore()
			e := overLimit(t, store, nil)
			answer := limiter.Answer{}
			for range 3 {
				before := store.requests()
				answer = mustDo(t, e, c.call)
				if asked := store.requests() - before; asked != c.asks {
					t.Errorf("%d requests, not %d", asked, c.asks)
				}
				if answer.Allowed || answer.Used != 3 || answer.Recorded != count.RecordedNo || answer.RetryAfter <= 0 {
					t.Errorf("%+v", answer)
				}
			}
			for _, d := range answer.Demands {
				if full := d.Policy.Name == "p"; d.WouldAllow == full || d.Remembered != full {
					t.Errorf("%s: %+v", d.Policy.Name, d)
				}
			}
			if used := usedBy(t, e, beside); used != 0 {
				t.Errorf("%d units of what was denied count", used)
			}
			time.Sleep(answer.RetryAfter)
			if answer := mustDo(t, e, c.call); !answer.Allowed {
				t.Errorf("denied though its time had come: %+v", answer)
			}
		})
	}
}

// An idempotency key of which the call was allowed is told that whatever is remembered, and
// one of a denied call is free for when there is room.
func TestIdempotencyKeysOfADenialFromMemory(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		e := overLimit(t, newFakeStore(), nil)
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "first"}
		first := mustDo(t, e, call)
		if !first.Allowed || !first.Replayed {
			t.Fatalf("not what the call was told: %+v", first)
		}
		call.IdempotencyKey = "second"
		for range 2 {
			if denied := mustDo(t, e, call); denied.Allowed || denied.Replayed || !denied.Remembered {
				t.Fatalf("a fourth of three: %+v", denied)
			}
		}
		must(t, e.Refund(t.Context(), first.Receipt))
		for i, replayed := range []bool{false, true} {
			if got := mustDo(t, e, call); !got.Allowed || got.Replayed != replayed || got.Used != 3 {
				t.Errorf("after the refund, call %d: %+v", i, got)
			}
		}
		call.Demands = []limiter.Demand{{Policy: "q", Identifier: "b"}}
		if _, err := e.Do(t.Context(), &call); err == nil {
			t.Error("another call by the same key is answered")
		}
	})
}

// Demands that count although they are denied, or are allowed although they are over, are
// counted.
func TestCallsThatAreNotDeniedFromMemory(t *testing.T) {
	for _, c := range []struct {
		name           string
		change         func(p, q *policy.Policy)
		allowed        bool
		overP, besideQ int64 // units that each call adds
	}{
		{"shadow", func(p, _ *policy.Policy) { p.Mode = policy.ModeShadow }, true, 0, 1},
		{"denied attempts count beside", func(_, q *policy.Policy) { q.Count = policy.CountAll }, false, 0, 1},
		{"denied attempts count", func(p, _ *policy.Policy) {
			p.Count, p.Limits[0].Algorithm, p.Limits[0].Window = policy.CountAll, "fixed-window", time.Hour
		}, false, 1, 0},
	} {
		for _, key := range []string{"", "k"} {
			bubble(t, c.name+", key "+key, func(t *testing.T) {
				e := overLimit(t, newFakeStore(), c.change)
				beside := limiter.Demand{Policy: "q", Identifier: "b"}
				before := usedBy(t, e, somebody)
				times := int64(3)
				for i := range times {
					call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody, beside}, IdempotencyKey: key}
					if answer := mustDo(t, e, call); answer.Allowed != c.allowed {
						t.Errorf("call %d: %+v", i, answer)
					}
				}
				if key != "" {
					times = 1 // it is one call
				}
				if got := usedBy(t, e, somebody) - before; got != times*c.overP {
					t.Errorf("%d units of p were counted, not %d", got, times*c.overP)
				}
				if got := usedBy(t, e, beside); got != times*c.besideQ {
					t.Errorf("%d units of q were counted, not %d", got, times*c.besideQ)
				}
			})
		}
	}
}

// A call that is denied again and again under one idempotency key leaves behind no more
// than when it was denied once, neither in its claim nor as removals from the log.
func TestDenialsUnderOneIdempotencyKey(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), policyOf("sliding-log", 1, 24*time.Hour)
		e := toldEngine(t, store, policy)
		mustTake(t, e)
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}, IdempotencyKey: "k"}
		var sizes []int
		for range 20 {
			time.Sleep(time.Minute) // the earlier denial is no longer remembered
			if answer := mustDo(t, e, call); answer.Allowed {
				t.Fatalf("%+v", answer)
			}
			sizes = append(sizes, len(store.last().Cell.Value))
		}
		if sizes[0] < sizes[len(sizes)-1] {
			t.Errorf("claims grow: %d", sizes)
		}
		removed := 0
		store.set(func() {
			for i := range store.writes {
				removed += len(store.writes[i].Remove)
			}
		})
		if removed > 2 { // of the first denial, which was written before it was judged
			t.Errorf("%d removals", removed)
		}
	})
}

// A caller over the limits of two demands is blocked by both, also while one is denied from
// memory.
func TestBothDemandsBlock(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		e := overLimit(t, newFakeStore(), func(_, q *policy.Policy) { q.BlockFor = time.Minute })
		beside := limiter.Demand{Policy: "q", Identifier: "b", Cost: 3}
		mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{beside}})
		time.Sleep(2 * time.Second)
		beside.Cost = 1
		answer := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody, beside}})
		if !answer.Demands[0].Remembered || answer.Demands[1].WouldAllow {
			t.Fatalf("%+v", answer)
		}
		if d, err := e.Take(t.Context(), beside); err != nil || !d.Blocked {
			t.Errorf("%+v, %v: want a block", d, err)
		}
	})
}

// A unit that is taken back with a call that falls leaves its room, also to a check that reads it
// meanwhile.
func TestRoomOfACallThatFalls(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		policy, never := inRows("fixed-window", 10, time.Hour), policyOf("fixed-window", 0, time.Hour)
		never.Name = "never"
		store := newFakeStore()
		e := toldEngine(t, store, policy, never)
		takes(t, e, 9)
		store.set(func() { store.readTakes, store.writeTakes = 10*time.Millisecond, 10*time.Millisecond })
		both := []limiter.Demand{somebody, {Policy: "never", Identifier: somebody.Identifier}}
		go func() {
			time.Sleep(15 * time.Millisecond) // it is written by then, and judged 5 ms later
			if d, err := e.Check(t.Context(), somebody); err != nil || !d.WouldAllow {
				t.Errorf("%+v, %v: want the unit of the call left out", d, err)
			}
		}()
		if answer := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: both}); answer.Allowed {
			t.Fatalf("%+v", answer)
		}
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%+v: want the unit that was taken back", d)
		}
	})
}
