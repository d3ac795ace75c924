package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func testReservationIsSettledOnce(t *testing.T, store store.Store) {
	policies := kinds(2)
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate)...)
	for _, p := range policies {
		check := limiter.Call{Op: count.OpCheck, Demands: on(p.Name), Reserve: time.Minute}
		held := e.call(t, check)
		if !held.Allowed || held.Reservation == "" || held.Receipt != "" {
			t.Fatalf("%s: %+v", p.Name, held)
		}
		e.wantUsed(t, p.Name, 1, "while it is held")
		settle := limiter.Call{Op: count.OpRecord, Demands: on(p.Name), Reservation: held.Reservation}
		settled := e.call(t, settle)
		if !settled.Allowed || settled.Recorded != count.RecordedYes || settled.Used != 1 || settled.Receipt == "" {
			t.Errorf("%s: settled: %+v", p.Name, settled)
		}
		settle.Demands = nil
		if again := e.call(t, settle); again.Policy.Name != p.Name || again.Used != 1 {
			t.Errorf("%s: settled without demands: %+v", p.Name, again.Decision)
		}
		e.wantUsed(t, p.Name, 1, "after it was settled twice")
		if got := e.call(t, check); !got.Allowed {
			t.Errorf("%s: a second take under a limit of 2: %+v", p.Name, got.Verdict)
		}
		if got := e.call(t, check); got.Allowed || got.Reservation != "" {
			t.Errorf("%s: a third take under a limit of 2: %+v", p.Name, got.Verdict)
		}
		settle.Demands = []limiter.Demand{{Policy: p.Name, Identifier: "somebody else"}}
		var field *limiter.FieldError
		if _, err := e.Engine.Do(t.Context(), &settle); !errors.As(err, &field) || field.Field != "reservation" {
			t.Errorf("%s: settled for another identifier: %v", p.Name, err)
		}
	}
}

// testSettledAfterItsRefund records a reservation again after its units were refunded: removed events stay removed,
// however many records follow.
func testSettledAfterItsRefund(t *testing.T, store store.Store) {
	const limit, later = 2, 8
	policies := kinds(limit)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		held := e.call(t, limiter.Call{Op: count.OpCheck, Demands: on(p.Name), Reserve: time.Minute})
		settle := limiter.Call{Op: count.OpRecord, Demands: on(p.Name), Reservation: held.Reservation}
		settled := e.call(t, settle)
		*e.Now = e.Now.Add(3 * storeTimeout)
		if err := e.Refund(t.Context(), settled.Receipt); err != nil {
			t.Fatal(err)
		}
		e.wantUsed(t, p.Name, 0, "after its refund")
		e.call(t, settle)
		e.wantUsed(t, p.Name, 0, "after it was settled again")
	}
}

// testSettledBehindOthers records a reservation that is followed by more events than a decision reads.
func testSettledBehindOthers(t *testing.T, store store.Store) {
	const limit, later = 2, 8
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		p := policy.Policy{Name: "log", Guarantee: guarantee,
			Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: limit, Window: time.Hour}}}
		e := NewEngine(t, store, limiter.Options{}, p)
		held := e.call(t, limiter.Call{Op: count.OpCheck, Demands: on("log"), Reserve: time.Minute})
		var receipts []string
		for range later {
			*e.Now = e.Now.Add(time.Second)
			receipts = append(receipts, e.call(t, limiter.Call{Op: count.OpRecord, Demands: on("log")}).Receipt)
		}
		e.call(t, limiter.Call{Op: count.OpRecord, Demands: on("log"), Reservation: held.Reservation})
		*e.Now = e.Now.Add(2 * time.Minute)
		for _, receipt := range receipts {
			if err := e.Refund(t.Context(), receipt); err != nil {
				t.Fatal(err)
			}
		}
		e.wantUsed(t, "log", 1, "by what was reserved, "+string(guarantee))
	}
}

func testHoldsOfLogsEnd(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{ClockTolerance: 50 * time.Millisecond}, gate)
	check := limiter.Call{Op: count.OpCheck, Demands: on("gate"), Reserve: 5 * time.Second}
	held := e.call(t, check)
	denied := e.call(t, check)
	if denied.Allowed || denied.RetryAfter < 5*time.Second || denied.RetryAfter > 5200*time.Millisecond {
		t.Errorf("beside a hold of 5 s: allowed %v, retry after %v", denied.Allowed, denied.RetryAfter)
	}
	*e.Now = e.Now.Add(denied.RetryAfter - time.Millisecond)
	e.wantUsed(t, "gate", 1, "until the hold ends")
	*e.Now = e.Now.Add(time.Millisecond)
	e.wantUsed(t, "gate", 0, "when the hold has ended")
	e.call(t, limiter.Call{Op: count.OpRecord, Demands: on("gate"), Reservation: held.Reservation})
	e.wantUsed(t, "gate", 1, "when it was recorded all the same")
}

// testRefundOfWhatWasReset refunds units that a reset has removed, without effect.
func testRefundOfWhatWasReset(t *testing.T, store store.Store) {
	policies := kinds(3)
	e := NewEngine(t, store, limiter.Options{}, policies...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
		*e.Now = e.Now.Add(time.Second)
		if err := e.Reset(t.Context(), p.Name, Somebody); err != nil {
			t.Fatal(err)
		}
		*e.Now = e.Now.Add(3 * storeTimeout)
		e.Do(t, count.OpTake, p.Name)
		e.Do(t, count.OpTake, p.Name)
		if err := e.Refund(t.Context(), taken.Receipt); err != nil {
			t.Fatal(err)
		}
		e.wantUsed(t, p.Name, 2, "of two after a reset, when one from before it was refunded")
	}
}

func testRefundOnce(t *testing.T, store store.Store) {
	policies := kinds(2)
	for _, p := range policies {
		for i := range p.Limits {
			p.Limits[i].Window = time.Hour // a bucket gives back only units that have not drained
		}
	}
	e := NewEngine(t, store, limiter.Options{}, append(policies, gate)...)
	for _, p := range policies {
		*e.Now = Clock(t, "12:00:00")
		taken := e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
		e.call(t, limiter.Call{Op: count.OpTake, Demands: on(p.Name)})
		*e.Now = e.Now.Add(3 * storeTimeout) // old enough to be subtracted at once
		before := e.Do(t, count.OpCheck, p.Name).Used
		if err := e.Refund(t.Context(), taken.Receipt); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		if got := e.Do(t, count.OpCheck, p.Name); got.Used >= before || !got.Allowed {
			t.Errorf("%s: used %d after a refund, %d before", p.Name, got.Used, before)
		}
		after := e.Do(t, count.OpCheck, p.Name).Used
		if err := e.Refund(t.Context(), taken.Receipt); !errors.Is(err, limiter.ErrNoReceipt) && !p.IsConcurrent() {
			t.Errorf("%s: refunded twice: %v", p.Name, err)
		}
		e.wantUsed(t, p.Name, after, "after a second refund")
	}
	for _, receipt := range []string{"", "x", "AAAA", string(make([]byte, 5000))} {
		if err := e.Refund(t.Context(), receipt); !errors.Is(err, limiter.ErrNoReceipt) {
			t.Errorf("refunding %.10q: %v", receipt, err)
		}
	}
}
