package storetest

import (
	"crypto/rand"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// kinds returns a policy of n units a minute for each way of keeping units:
// every algorithm, and policies that mix them.
func kinds(n int64) []policy.Policy {
	policies := each(n)
	mixes := map[string][]string{
		"log-and-window":        {"sliding-log", "fixed-window"},
		"two-windows-and-a-log": {"sliding-tail", "sliding-log", "fixed-window"},
		"two-buckets":           {"token-bucket", "leaky-bucket"},
	}
	for name, algorithms := range mixes {
		p := policy.Policy{Name: name}
		for _, algorithm := range algorithms {
			p.Limits = append(p.Limits, policy.Limit{Algorithm: algorithm, Limit: n, Window: time.Minute})
		}
		policies = append(policies, p)
	}
	return policies
}

// gate is a policy of one unit a minute.
var gate = policy.Policy{Name: "gate", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1, Window: time.Minute}}}

// call makes a call and fails the test on an error.
func (e Engine) call(t testing.TB, call limiter.Call) limiter.Answer {
	t.Helper()
	answer, err := e.Engine.Do(t.Context(), &call)
	if err != nil {
		t.Fatalf("%s: %v", call.Op, err)
	}
	return answer
}

// on returns the demands of Somebody under policies.
func on(policies ...string) []limiter.Demand {
	var demands []limiter.Demand
	for _, p := range policies {
		demands = append(demands, limiter.Demand{Policy: p, Identifier: Somebody})
	}
	return demands
}

func (e Engine) wantUsed(t testing.TB, policy string, want int64, when string) {
	t.Helper()
	if got := e.Do(t, count.OpCheck, policy); got.Used != want {
		t.Errorf("%s: used %d %s, want %d", policy, got.Used, when, want)
	}
}

func testEveryKindDenies(t *testing.T, store store.Store) {
	policies := kinds(2)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		for i := range 2 {
			if got := e.Do(t, count.OpTake, p.Name); !got.Allowed || got.Used != int64(i+1) {
				t.Errorf("%s: take %d: %+v", p.Name, i+1, got.Verdict)
			}
		}
		if got := e.Do(t, count.OpTake, p.Name); got.Allowed || got.RetryAfter <= 0 {
			t.Errorf("%s: a third take under a limit of 2: %+v", p.Name, got.Verdict)
		}
		if err := e.Reset(t.Context(), p.Name, Somebody); err != nil {
			t.Fatal(err)
		}
		e.wantUsed(t, p.Name, 0, "after a reset")
		if got := e.Do(t, count.OpTake, p.Name); !got.Allowed || got.Used != 1 {
			t.Errorf("%s: a take after a reset: %+v", p.Name, got.Verdict)
		}
	}
}

// testAllOrNone makes a second demand deny the call, so that the first one does not count.
func testAllOrNone(t *testing.T, store store.Store) {
	policies := kinds(3)
	bucket := policy.Policy{Name: "bucket", Limits: []policy.Limit{{Algorithm: "leaky-bucket", Limit: 1, Window: time.Minute}}}
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate, bucket)...)
	for i, p := range policies {
		for _, full := range []string{gate.Name, bucket.Name} {
			demands := on(p.Name, full)
			if i%2 == 1 {
				demands[0], demands[1] = demands[1], demands[0]
			}
			demands[0].Identifier, demands[1].Identifier = keys.Identifier(p.Name+full), keys.Identifier(p.Name+full)
			e.allOrNone(t, p.Name, full, demands)
		}
	}
}

// allOrNone checks that a call for a policy with room for three and for full, with room for one, passes once.
func (e *Engine) allOrNone(t *testing.T, name, full string, demands []limiter.Demand) {
	t.Helper()
	if got := e.call(t, limiter.Call{Op: count.OpTake, Demands: demands}); !got.Allowed || got.Recorded != count.RecordedYes {
		t.Errorf("%s: with room for both: %+v", name, got.Decision)
	}
	for range 2 {
		got := e.call(t, limiter.Call{Op: count.OpTake, Demands: demands})
		if got.Allowed || got.Recorded != count.RecordedNo || got.Policy.Name != full || got.RetryAfter <= 0 || len(got.Demands) != 2 {
			t.Errorf("%s: one demand has no room: allowed %v, recorded %s, by %s", name, got.Allowed, got.Recorded, got.Policy.Name)
		}
		for _, d := range got.Demands {
			if d.Used != 1 || d.Recorded != count.RecordedNo {
				t.Errorf("%s: one demand has no room: used %d of %s, recorded %s", name, d.Used, d.Policy.Name, d.Recorded)
			}
		}
	}
	check := e.call(t, limiter.Call{Op: count.OpCheck, Demands: demands})
	for _, d := range check.Demands {
		if d.Used != 1 {
			t.Errorf("%s: used %d of %s after one of two calls passed", name, d.Used, d.Policy.Name)
		}
	}
	if check.Allowed {
		t.Errorf("%s: the check of both is allowed", name)
	}
}

func testDemandsByMode(t *testing.T, store store.Store) {
	shadow, off, all := gate, gate, gate
	shadow.Name, shadow.Mode = "shadow", policy.ModeShadow
	off.Name, off.Mode = "off", policy.ModeOff
	all.Name, all.Count = "all", policy.CountAll
	all.Limits = []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Minute}}
	e := NewEngine(t, store, limiter.Options{}, append(each(5), gate, shadow, off, all)...)
	take := func(policies ...string) limiter.Answer {
		return e.call(t, limiter.Call{Op: count.OpTake, Demands: on(policies...)})
	}
	take("shadow", "off", "fixed-window")
	if got := take("shadow", "off", "fixed-window"); !got.Allowed || got.WouldAllow {
		t.Errorf("a demand in shadow mode: allowed %v, would allow %v", got.Allowed, got.WouldAllow)
	}
	e.wantUsed(t, "fixed-window", 2, "beside a shadow that denies")
	e.wantUsed(t, "shadow", 1, "in shadow mode")
	two := policy.Policy{Name: "two", Mode: policy.ModeShadow, Limits: []policy.Limit{
		{Algorithm: "fixed-window", Limit: 5, Window: time.Minute}, {Algorithm: "sliding-log", Limit: 1, Window: time.Minute},
	}}
	if err := e.SetPolicies(append(each(5), gate, all, two)); err != nil {
		t.Fatal(err)
	}
	take("two")
	if got := take("two"); !got.Allowed || got.WouldAllow || got.Limits()[0].Used != 1 || got.Recorded != count.RecordedNo {
		t.Errorf("one shadow limit has room, the other has none: recorded %s, used %d of the window", got.Recorded, got.Limits()[0].Used)
	}
	if got := e.Do(t, count.OpCheck, "two"); got.Limits()[0].Used != 1 {
		t.Errorf("the window of the denying shadow has %d units, want 1", got.Limits()[0].Used)
	}
	take("gate", "all")
	take("gate", "all")
	e.wantUsed(t, "all", 2, "where denied attempts count")
}

func testRepetitionsCountOnce(t *testing.T, store store.Store) {
	policies := kinds(2)
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate)...)
	for _, p := range policies {
		call := limiter.Call{Op: count.OpTake, Demands: on(p.Name), IdempotencyKey: p.Name}
		first := e.call(t, call)
		if !first.Allowed || first.Replayed || first.Receipt == "" {
			t.Errorf("%s: the first call with its key: %+v", p.Name, first)
		}
		second := e.call(t, call)
		if !second.Replayed || second.Receipt != first.Receipt || second.Verdict != first.Verdict || second.Recorded != count.RecordedYes {
			t.Errorf("%s: a repetition: %+v, want %+v", p.Name, second, first)
		}
		e.wantUsed(t, p.Name, 1, "after a repetition")
		other := call
		other.Demands = []limiter.Demand{{Policy: p.Name, Identifier: Somebody, Cost: 2}}
		if _, err := e.Engine.Do(t.Context(), &other); !errors.Is(err, limiter.ErrReused) {
			t.Errorf("%s: the key with another call: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, 1, "after its key was reused")
	}
}

func testDenialIsDecidedAnew(t *testing.T, store store.Store) {
	policies := kinds(1)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		e.Do(t, count.OpTake, p.Name)
		call := limiter.Call{Op: count.OpTake, Demands: on(p.Name), IdempotencyKey: p.Name}
		for range 2 {
			if got := e.call(t, call); got.Allowed || got.Replayed {
				t.Errorf("%s: over the limit: allowed %v, replayed %v", p.Name, got.Allowed, got.Replayed)
			}
		}
		if err := e.Reset(t.Context(), p.Name, Somebody); err != nil {
			t.Fatal(err)
		}
		if got := e.call(t, call); !got.Allowed || got.Replayed {
			t.Errorf("%s: with room again: allowed %v, replayed %v", p.Name, got.Allowed, got.Replayed)
		}
		if got := e.call(t, call); !got.Allowed || !got.Replayed {
			t.Errorf("%s: again: allowed %v, replayed %v", p.Name, got.Allowed, got.Replayed)
		}
	}
}

// testRacingRepetitionsCountOnce lets twenty repetitions of a call race on several engines. Each is repeated until
// it is answered, as callers do, because a slow store can't answer all of them at once.
func testRacingRepetitionsCountOnce(t *testing.T, s store.Store) {
	const engines, each, tries = 4, 5, 10
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	policies := kinds(100)
	for _, p := range policies {
		var all sync.WaitGroup
		var last Engine
		for range engines {
			e := NewEngine(t, s, opts, p)
			last = e
			for range each {
				all.Go(func() {
					var answer limiter.Answer
					err := store.ErrUnavailable
					for try := 0; try < tries && errors.Is(err, store.ErrUnavailable); try++ {
						answer, err = e.Engine.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: on(p.Name), IdempotencyKey: p.Name})
					}
					if err != nil || !answer.Allowed {
						t.Errorf("%s: allowed %v, %v", p.Name, answer.Allowed, err)
					}
				})
			}
		}
		all.Wait()
		last.wantUsed(t, p.Name, 1, "after twenty repetitions at once")
	}
}

// testTokensAreForOneUse uses a receipt as a reservation, and a reservation as a receipt.
func testTokensAreForOneUse(t *testing.T, store store.Store) {
	all := gate
	all.Name, all.Count = "all", policy.CountAll
	e := NewEngine(t, store, limiter.Options{}, append(each(2), gate, all)...)
	held := e.call(t, limiter.Call{Op: count.OpCheck, Demands: on("all"), Reserve: time.Minute})
	if _, err := e.Confirm(t.Context(), held.Reservation); !errors.Is(err, limiter.ErrNoReceipt) {
		t.Errorf("confirming a reservation: %v", err)
	}
	if got := e.call(t, limiter.Call{Op: count.OpCheck, Demands: on("all"), Reserve: time.Minute}); got.Allowed || got.Used != 1 {
		t.Errorf("a denied reservation counts: %+v", got.Verdict)
	}
	taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on("gate")})
	call := limiter.Call{Op: count.OpRecord, Demands: on("gate"), Reservation: taken.Receipt}
	var field *limiter.FieldError
	if _, err := e.Engine.Do(t.Context(), &call); !errors.As(err, &field) || field.Field != "reservation" {
		t.Errorf("settling a receipt: %v", err)
	}
	changed := gate
	changed.Guarantee = policy.GuaranteeLocal
	if err := e.SetPolicies([]policy.Policy{changed}); err != nil {
		t.Fatal(err)
	}
	if err := e.Refund(t.Context(), taken.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
		t.Errorf("a refund under a policy whose counts started over: %v", err)
	}
}

// testHashKeysOutOfStep changes the hash key phase by phase: units counted under one key count under the other, and a
// reset covers both.
func testHashKeysOutOfStep(t *testing.T, store store.Store) {
	namespace := rand.Text()
	keyer := func(id string) keys.Keyer {
		return keys.Keyer{Namespace: namespace, Secret: &keys.HashKey{ID: id, Secret: []byte("0123456789abcdef" + id)}}
	}
	was, will := keyer("1"), keyer("2")
	phases := [][]keys.Keyer{{was}, {was, will}, {will, was}, {was, will}, {will, was}}
	for _, name := range []string{"sliding-log", "fixed-window", "sliding-window", "sliding-tail"} {
		p := policy.Policy{Name: name, Limits: []policy.Limit{{Algorithm: name, Limit: 5, Window: time.Minute}}}
		engine := func(keyers []keys.Keyer) Engine {
			return NewEngine(t, store, limiter.Options{Keyer: keyers[0], AlsoRead: keyers[1:]}, p)
		}
		for i, keyers := range phases {
			if got := engine(keyers).Do(t, count.OpTake, name); !got.Allowed || got.Used != int64(i+1) {
				t.Errorf("%s, phase %d: %+v", name, i+1, got.Verdict)
			}
		}
		for _, keyers := range phases[1:] {
			if got := engine(keyers).Do(t, count.OpTake, name); got.Allowed {
				t.Errorf("%s: a sixth take under a limit of 5: %+v", name, got.Verdict)
			}
		}
		if err := engine(phases[1]).Reset(t.Context(), name, Somebody); err != nil {
			t.Fatal(err)
		}
		for _, keyers := range phases {
			engine(keyers).wantUsed(t, name, 0, "after a reset under all keys")
		}
	}
}
