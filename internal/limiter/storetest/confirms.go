package storetest

import (
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// untilConfirmed returns policies of n units that count until they are confirmed, one for each way in which units are
// kept.
func untilConfirmed(n int64) (policies []policy.Policy) {
	for _, p := range kinds(n) {
		if slices.ContainsFunc(p.Limits, policy.Limit.InCell) || p.IsConcurrent() {
			continue
		}
		for i := range p.Limits {
			p.Limits[i].Window, p.Limits[i].Until = 24*time.Hour, policy.UntilConfirmed
		}
		policies = append(policies, p)
	}
	return policies
}

// halfConfirmed returns policies that require half of the sent units to be confirmed after n units.
func halfConfirmed(n int64) (policies []policy.Policy) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		policies = append(policies, policy.Policy{Name: "half-" + string(guarantee), Guarantee: guarantee, Limits: []policy.Limit{
			{Algorithm: "conversion", Limit: n, Window: time.Minute, MinConversion: 50},
		}})
	}
	return policies
}

// wantConfirmed confirms receipt. before says whether it was confirmed before.
func (e Engine) wantConfirmed(t testing.TB, receipt string, before bool) {
	t.Helper()
	if got, err := e.Confirm(t.Context(), receipt); err != nil || !got.Confirmed || got.Replayed != before {
		t.Errorf("confirming: %+v, %v; it was confirmed before: %v", got, err, before)
	}
}

// wantNotConfirmed wants receipt to confirm nothing, for a reason.
func (e Engine) wantNotConfirmed(t testing.TB, receipt, why string) {
	t.Helper()
	var refused *limiter.ReceiptError
	if _, err := e.Confirm(t.Context(), receipt); !errors.As(err, &refused) || refused.Why != why || !errors.Is(err, limiter.ErrNoReceipt) {
		t.Errorf("confirming: %v, want %q", err, why)
	}
}

// testConfirmedUnitsCountNoMore confirms one of two units, for each way in which they are kept: once, and not after a
// refund.
func testConfirmedUnitsCountNoMore(t *testing.T, store store.Store) {
	policies := untilConfirmed(2)
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate)...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		first := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
		second := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
		*e.Now = e.Now.Add(3 * storeTimeout) // old enough to be subtracted at once
		if got := e.Do(t, count.OpTake, p.Name); got.Allowed {
			t.Errorf("%s: a third take under a limit of 2 is allowed", p.Name)
		}
		e.wantConfirmed(t, first.Receipt, false)
		if got := e.Do(t, count.OpCheck, p.Name); !got.Allowed || got.Used > 1 {
			t.Errorf("%s: with one of two units confirmed: %+v", p.Name, got.Verdict)
		}
		e.wantConfirmed(t, first.Receipt, true)
		e.wantUsed(t, p.Name, 1, "after one of two was confirmed twice")
		if err := e.Refund(t.Context(), first.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("%s: refunding a confirmed unit: %v", p.Name, err)
		}
		if err := e.Refund(t.Context(), second.Receipt); err != nil {
			t.Fatal(err)
		}
		e.wantNotConfirmed(t, second.Receipt, "it was refunded")
		e.wantUsed(t, p.Name, 0, "after one was confirmed and one refunded")
	}
}

// testConfirmTouchesNothingElse confirms a call of several demands.
func testConfirmTouchesNothingElse(t *testing.T, store store.Store) {
	policies := untilConfirmed(2)
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate)...)
	for _, p := range policies {
		*e.Now = e.Now.Add(2 * time.Minute)
		taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name, "gate")})
		*e.Now = e.Now.Add(3 * storeTimeout)
		e.wantConfirmed(t, taken.Receipt, false)
		e.wantUsed(t, p.Name, 0, "after it was confirmed")
		e.wantUsed(t, "gate", 1, "beside what was confirmed")
		if err := e.Refund(t.Context(), taken.Receipt); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("%s: refunding a confirmed receipt: %v", p.Name, err)
		}
		e.wantUsed(t, "gate", 1, "after a refund of what is confirmed")
		*e.Now = e.Now.Add(2 * time.Minute)
		taken = e.call(t, limiter.Call{Op: count.OpTake, Demands: on("gate", p.Name)})
		*e.Now = e.Now.Add(3 * storeTimeout)
		if err := e.Refund(t.Context(), taken.Receipt); err != nil {
			t.Fatal(err)
		}
		e.wantNotConfirmed(t, taken.Receipt, "it was refunded")
		e.wantUsed(t, p.Name, 0, "after it was refunded")
	}
	alone := e.call(t, limiter.Call{Op: count.OpTake, Demands: on("gate")})
	if got, err := e.Confirm(t.Context(), alone.Receipt); err != nil || got.Confirmed {
		t.Errorf("no limit counts confirmations: %+v, %v", got, err)
	}
	e.wantUsed(t, "gate", 1, "after a confirmation that no limit counts")
}

// testOneConfirmationOfANumber confirms one number repeatedly under a conversion of its range. That covers one unit
// within a window, whether the range is derived or in the call. Another number covers another unit.
func testOneConfirmationOfANumber(t *testing.T, store store.Store) {
	for _, p := range halfConfirmed(4) {
		number := perMinute("number", "sliding-log", 9, "")
		number.Limits[0].Until = policy.UntilConfirmed
		e := NewEngine(t, store, limiter.Options{}, number, p)
		*e.Now = Clock(t, "12:00:00")
		take := func(number keys.Identifier) limiter.Answer {
			demands := []limiter.Demand{{Policy: "number", Identifier: number}, {Policy: p.Name, Identifier: Somebody}}
			return e.call(t, limiter.Call{Op: count.OpTake, Demands: demands})
		}
		for range 4 {
			e.wantConfirmed(t, take("+4915112345678").Receipt, false)
		}
		if got := e.Do(t, count.OpCheck, p.Name); got.Allowed {
			t.Errorf("%s: repeated confirmations of one number cover more than one unit: %+v", p.Name, got.Verdict)
		}
		if got, err := e.Check(t.Context(), limiter.Demand{Policy: "number", Identifier: "+4915112345678"}); err != nil || got.Used != 0 {
			t.Errorf("%s: confirmed units of the number still count: %d, %v", p.Name, got.Used, err)
		}
		*e.Now = e.Now.Add(2 * time.Minute)
		for _, number := range []keys.Identifier{"+4915112345671", "+4915112345672", "+4915112345673", "+4915112345674"} {
			e.wantConfirmed(t, take(number).Receipt, false)
		}
		if got := e.Do(t, count.OpCheck, p.Name); !got.Allowed {
			t.Errorf("%s: four numbers are confirmed, but a take is denied: %+v", p.Name, got.Verdict)
		}
	}
}

// testDeniedTakesConfirmNothing counts a denied attempt under one policy. Its receipt confirms nothing and can be
// refunded.
func testDeniedTakesConfirmNothing(t *testing.T, store store.Store) {
	attempts := policy.Policy{Name: "attempts", Count: policy.CountAll, Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 1, Window: time.Minute, Until: policy.UntilConfirmed},
	}}
	e := NewEngine(t, store, limiter.Options{}, attempts)
	take := limiter.Call{Op: count.OpTake, Demands: on("attempts")}
	e.call(t, take)
	denied := e.call(t, take)
	if denied.Allowed || denied.Receipt == "" {
		t.Fatalf("a second take under a limit of 1: %+v", denied)
	}
	e.wantNotConfirmed(t, denied.Receipt, "its take was denied")
	if err := e.Refund(t.Context(), denied.Receipt); err != nil {
		t.Error(err)
	}
	e.wantUsed(t, "attempts", 1, "after the denied attempt was refunded")
}

// testConversion goes from too few confirmed units to enough, and back.
func testConversion(t *testing.T, store store.Store) {
	policies := halfConfirmed(2)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		take := limiter.Call{Op: count.OpTake, Demands: on(p.Name)}
		first, second := e.call(t, take), e.call(t, take)
		if got := e.call(t, take); got.Allowed || got.RetryAfter != time.Minute {
			t.Errorf("%s: with 0 of 2 confirmed: %+v", p.Name, got.Verdict)
		}
		e.wantConfirmed(t, first.Receipt, false)
		third := e.call(t, take)
		e.wantConfirmed(t, first.Receipt, true)
		if got := e.call(t, take); !third.Allowed || got.Allowed {
			t.Errorf("%s: allowed %v with 1 of 2 confirmed, and %v with 1 of 3", p.Name, third.Allowed, got.Allowed)
		}
		if err := e.Refund(t.Context(), third.Receipt); err != nil {
			t.Fatal(err)
		}
		if got := e.call(t, take); !got.Allowed {
			t.Errorf("%s: with 1 of 2 confirmed after a refund of the third: %+v", p.Name, got.Verdict)
		}
		*e.Now = e.Now.Add(time.Hour)
		e.wantNotConfirmed(t, second.Receipt, "its window is over")
	}
}

// testConfirmOfWhatWasReset confirms units that a reset has removed, without effect.
func testConfirmOfWhatWasReset(t *testing.T, store store.Store) {
	policies := halfConfirmed(2)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		take := limiter.Call{Op: count.OpTake, Demands: on(p.Name)}
		before := e.call(t, take)
		*e.Now = e.Now.Add(time.Second)
		if err := e.Reset(t.Context(), p.Name, Somebody); err != nil {
			t.Fatal(err)
		}
		*e.Now = e.Now.Add(time.Second)
		e.call(t, take)
		e.call(t, take)
		e.wantConfirmed(t, before.Receipt, false)
		if got := e.call(t, take); got.Allowed {
			t.Errorf("%s: after confirming a unit from before a reset: %+v", p.Name, got.Verdict)
		}
	}
}

// testConfirmOfAnother refuses receipts that this service did not make, and receipts of a removed policy.
func testConfirmOfAnother(t *testing.T, store store.Store) {
	policies := halfConfirmed(2)
	e, other := NewEngine(t, store, limiter.Options{}, policies...), NewEngine(t, store, limiter.Options{}, policies...)
	taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(policies[0].Name)})
	other.wantNotConfirmed(t, taken.Receipt, "it is no receipt of this service")
	for _, receipt := range []string{"", "x", "AAAA", string(make([]byte, 5000))} {
		e.wantNotConfirmed(t, receipt, "it is no receipt of this service")
	}
	if err := e.SetPolicies([]policy.Policy{gate}); err != nil {
		t.Fatal(err)
	}
	e.wantNotConfirmed(t, taken.Receipt, "one of its policies is not in force, or counts under new keys")
}

// testRacingConfirms lets several engines send, confirm each receipt twice, and refund some. Each unit is confirmed or
// refunded once, and no more are sent than the confirmed ones cover.
func testRacingConfirms(t *testing.T, store store.Store) {
	const engines, each, after = 3, 12, 10
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	policies := append(halfConfirmed(after), untilConfirmed(after)[0])
	for _, p := range policies {
		var confirmed, refunded, sent, replayed atomic.Int64
		var all sync.WaitGroup
		for range engines {
			e := NewEngine(t, store, opts, p)
			all.Go(func() {
				for i := range each {
					a, err := e.Engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
					if err != nil || !a.Allowed {
						continue
					}
					sent.Add(1)
					if i%3 == 2 {
						continue
					}
					var once sync.WaitGroup
					for range 2 {
						once.Go(func() {
							switch got, err := e.Confirm(t.Context(), a.Receipt); {
							case err == nil && got.Replayed:
								replayed.Add(1)
							case err == nil:
								confirmed.Add(1)
							case !errors.Is(err, limiter.ErrNoReceipt):
								t.Error(err)
							}
						})
					}
					if i%3 == 1 {
						once.Go(func() {
							if err := e.Refund(t.Context(), a.Receipt); err == nil {
								refunded.Add(1)
							}
						})
					}
					once.Wait()
				}
			})
		}
		all.Wait()
		got := NewEngine(t, store, opts, p).Do(t, count.OpCheck, p.Name) // a new engine remembers no denial
		if used := sent.Load() - confirmed.Load() - refunded.Load(); p.Limits[0].Until != "" && got.Used != used {
			t.Errorf("%s: used %d: %d sent, %d confirmed, %d refunded", p.Name, got.Used, sent.Load(), confirmed.Load(), refunded.Load())
		}
		if confirmed.Load() == 0 {
			t.Errorf("%s: no unit was confirmed of %d, %d replayed", p.Name, sent.Load(), replayed.Load())
		}
		if p.Limits[0].Until == "" { // the definition counts sent units that were not refunded
			counted, stood := sent.Load()-refunded.Load(), 2*confirmed.Load()+1
			if want := max(0, counted-max(0, stood-after)); got.Used != want {
				t.Errorf("%s: used %d, want %d: %d count, %d are confirmed", p.Name, got.Used, want, counted, confirmed.Load())
			}
		}
	}
}
