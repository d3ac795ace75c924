package storetest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// perDay returns the kinds of n units a day, whose buckets hardly drain within a test.
func perDay(n int64) []policy.Policy {
	policies := kinds(n)
	for i := range policies {
		for j := range policies[i].Limits {
			policies[i].Limits[j].Window = 24 * time.Hour
		}
	}
	return policies
}

// held is a reservation of 40 units of 100 for somebody of its own.
type held struct {
	t     testing.TB
	e     Engine
	of    limiter.Demand
	token string
}

func (e Engine) hold(t testing.TB, policy, id string) *held {
	t.Helper()
	h := &held{t: t, e: e, of: limiter.Demand{Policy: policy, Identifier: keys.Identifier(id), Cost: 40}}
	answer := e.call(t, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{h.of}, Reserve: time.Hour / 2})
	if h.token = answer.Reservation; h.token == "" {
		t.Fatalf("%s, %s: nothing is held: %+v", policy, id, answer.Decision)
	}
	*e.Now = e.Now.Add(3 * storeTimeout) // old enough to be subtracted from at once
	return h
}

// settle records the reservation at a cost by e, and returns the receipt.
func (h *held) settle(e Engine, cost int64, want limiter.Settled) (receipt string) {
	h.t.Helper()
	answer, err := e.Engine.Do(h.t.Context(), &limiter.Call{Op: count.OpRecord, Reservation: h.token, Cost: cost})
	if err != nil || !answer.Allowed || len(answer.Settled) != 1 || answer.Settled[0] != want {
		h.t.Errorf("%s, %s: settled at a cost of %d: %+v, %v, want %+v", h.of.Policy, h.of.Identifier, cost, answer.Settled, err, want)
	}
	return answer.Receipt
}

func (h *held) wantUsed(want int64, when string) {
	h.t.Helper()
	d, err := h.e.Check(h.t.Context(), limiter.Demand{Policy: h.of.Policy, Identifier: h.of.Identifier})
	if err != nil {
		h.t.Fatal(err)
	}
	for _, l := range d.Limits() {
		over := l.Used - want // a fraction of a unit that was added twice may remain
		if want < l.Limit.Limit && over != 0 && (over != 1 || !strings.HasSuffix(l.Limit.Algorithm, "bucket")) ||
			want >= l.Limit.Limit && l.Used < l.Limit.Limit {
			h.t.Errorf("%s, %s: used %d of %s %s, want %d", h.of.Policy, h.of.Identifier, l.Used, l.Limit.Name, when, want)
		}
	}
}

// testSettledAtItsCost reserves 40 units of 100 and settles fewer, or more than 100: once, even if another instance
// repeats it at another cost. The receipt refunds the settled units.
func testSettledAtItsCost(t *testing.T, store store.Store) {
	policies := perDay(100)
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	e, other := NewEngine(t, store, opts, policies...), NewEngine(t, store, opts, policies...)
	for _, p := range policies {
		for _, cost := range []int64{13, 130} {
			*e.Now = Clock(t, "12:00:00")
			h := e.hold(t, p.Name, fmt.Sprint(cost))
			*other.Now = *e.Now
			h.wantUsed(40, "while it is held")
			want := limiter.Settled{Cost: cost, Over: max(0, cost-40)}
			receipt := h.settle(e, cost, want)
			h.wantUsed(want.Cost, "once it is settled")
			for _, at := range []int64{cost, 7, limiter.CostNothing} {
				h.settle(other, at, want)
			}
			h.wantUsed(want.Cost, "when it was settled again, at other costs")
			if err := other.Refund(t.Context(), h.token); !errors.Is(err, limiter.ErrNoReceipt) {
				t.Errorf("%s: released though it was settled at %d: %v", p.Name, cost, err)
			}
			*e.Now, *other.Now = e.Now.Add(3*storeTimeout), other.Now.Add(3*storeTimeout)
			if err := other.Refund(t.Context(), receipt); err != nil {
				t.Fatal(err)
			}
			h.wantUsed(0, "once it was refunded")
			h.settle(e, 0, want)
			h.wantUsed(0, "when it was settled again after its refund")
		}
	}
}

// testRacingSettlements lets settlements of a reservation at different costs race on several engines. Each is repeated
// until it is answered: all get the same answer, and that is what counts.
func testRacingSettlements(t *testing.T, s store.Store) {
	const engines, each, tries = 3, 3, 10
	policies := perDay(100)
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	e := NewEngine(t, s, opts, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		h := e.hold(t, p.Name, "raced")
		var all sync.WaitGroup
		var told [engines * each]limiter.Settled
		for i := range engines {
			by := NewEngine(t, s, opts, policies...)
			*by.Now = *e.Now
			for j := range each {
				n := i*each + j
				all.Go(func() {
					call := limiter.Call{Op: count.OpRecord, Reservation: h.token, Cost: int64(n + 1)}
					answer, err := limiter.Answer{}, store.ErrUnavailable
					for try := 0; try < tries && errors.Is(err, store.ErrUnavailable); try++ {
						answer, err = by.Engine.Do(t.Context(), &call)
					}
					if err != nil || len(answer.Settled) != 1 {
						t.Errorf("%s: settled %+v: %v", p.Name, answer.Settled, err)
						return
					}
					told[n] = answer.Settled[0]
				})
			}
		}
		all.Wait()
		for _, other := range told[1:] {
			if other != told[0] {
				t.Errorf("%s: answered %+v and %+v", p.Name, told[0], other)
			}
		}
		h.wantUsed(told[0].Cost, "after a race")
	}
}

// testReleased gives back all held units, by a refund of the reservation or by settling at a cost of 0.
func testReleased(t *testing.T, store store.Store) {
	policies := perDay(100)
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	e, other := NewEngine(t, store, opts, policies...), NewEngine(t, store, opts, policies...)
	for _, p := range policies {
		for name, release := range map[string]func(h *held){
			"refunded": func(h *held) {
				if err := other.Refund(t.Context(), h.token); err != nil {
					t.Errorf("%s: released: %v", p.Name, err)
				}
			},
			"settled at nothing": func(h *held) { h.settle(other, limiter.CostNothing, limiter.Settled{}) },
		} {
			*e.Now = Clock(t, "12:00:00")
			h := e.hold(t, p.Name, name)
			*other.Now = *e.Now
			e.call(t, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{h.of}}) // which is never given back
			release(h)
			h.wantUsed(40, "once it was "+name)
			for _, by := range []Engine{e, other} {
				if err := by.Refund(t.Context(), h.token); !errors.Is(err, limiter.ErrNoReceipt) {
					t.Errorf("%s: released twice: %v", p.Name, err)
				}
				h.settle(by, 40, limiter.Settled{})
			}
			h.wantUsed(40, "when that was repeated")
		}
	}
}

// testSettledAfterItsEnd settles a reservation that has ended: it counts as a record, once. A release is refused then.
func testSettledAfterItsEnd(t *testing.T, store store.Store) {
	logs := policy.Policy{Name: "logs", Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 100, Window: time.Minute}, {Algorithm: "sliding-log", Limit: 100, Window: 24 * time.Hour},
	}}
	e := NewEngine(t, store, limiter.Options{}, logs)
	h := e.hold(t, "logs", "late")
	*e.Now = e.Now.Add(time.Hour / 2)
	h.wantUsed(0, "after its end")
	if err := e.Refund(t.Context(), h.token); !errors.Is(err, limiter.ErrNoReceipt) {
		t.Errorf("released after its end: %v", err)
	}
	receipt := h.settle(e, 60, limiter.Settled{Cost: 60, Over: 60})
	h.settle(e, 13, limiter.Settled{Cost: 60, Over: 60})
	h.settle(e, 0, limiter.Settled{Cost: 60, Over: 60})
	h.wantUsed(60, "when it was settled after its end")
	if err := e.Refund(t.Context(), receipt); err != nil {
		t.Error(err)
	}
	h.wantUsed(0, "once that was refunded")
}

// testSettledOfSeveral settles each demand of a reservation at a cost of its own.
func testSettledOfSeveral(t *testing.T, store store.Store) {
	policies := perDay(100)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for i := range policies {
		*e.Now = Clock(t, "12:00:00")
		both := []limiter.Demand{
			{Policy: policies[i].Name, Identifier: "one", Cost: 40}, {Policy: policies[(i+1)%len(policies)].Name, Identifier: "other", Cost: 50},
		}
		answer := e.call(t, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: time.Hour / 2})
		*e.Now = e.Now.Add(3 * storeTimeout)
		settle := limiter.Call{Op: count.OpRecord, Reservation: answer.Reservation, Cost: 7}
		var field *limiter.FieldError
		if _, err := e.Engine.Do(t.Context(), &settle); !errors.As(err, &field) || field.Field != "cost" {
			t.Errorf("%s: one cost for demands that hold different units: %v", policies[i].Name, err)
		}
		settle.Cost, settle.Demands = 0, []limiter.Demand{both[1], {Policy: both[0].Policy, Identifier: "one"}}
		if _, err := e.Engine.Do(t.Context(), &settle); !errors.As(err, &field) || field.Field != "demands[1].cost" {
			t.Errorf("%s: a demand without its cost: %v", policies[i].Name, err)
		}
		settle.Demands[0].Cost, settle.Demands[1].Cost = 60, limiter.CostNothing
		for range 2 {
			settled := e.call(t, settle)
			want := []limiter.Settled{{Cost: 60, Over: 10}, {}}
			if len(settled.Settled) != 2 || settled.Settled[0] != want[0] || settled.Settled[1] != want[1] {
				t.Errorf("%s: settled %+v, want %+v", policies[i].Name, settled.Settled, want)
			}
			for j, used := range []int64{60, 0} {
				if got := settled.Demands[j].Used; got != used {
					t.Errorf("%s: used %d of %s, want %d", policies[i].Name, got, settle.Demands[j].Policy, used)
				}
			}
			settle.Cost, settle.Demands[0].Cost = 0, 13 // the second settlement
		}
		for _, d := range both {
			if err := e.Reset(t.Context(), d.Policy, d.Identifier); err != nil {
				t.Fatal(err)
			}
		}
	}
}
