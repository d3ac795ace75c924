package storetest

import (
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// insteadOfConversions returns a person's policies: two unconfirmed units for each first letter; instead of these, one
// for each known person, and one for all others.
func insteadOfConversions(guarantee policy.Guarantee) []policy.Policy {
	person := perMinute("person", "sliding-log", 9, "")
	person.Normalize = policy.Normalize{Form: policy.FormE164}
	person.Derive = []policy.Derivation{
		{Policy: "letter", From: policy.PartPrefix, Digits: 1},
		{Policy: "known", From: policy.PartWhole, When: policy.WhenKnown},
		{Policy: "others", From: policy.PartPrefix, Digits: 1, When: policy.WhenDenied},
	}
	letter := policy.Policy{Name: "letter", Guarantee: guarantee, Limits: []policy.Limit{
		{Algorithm: "conversion", Unconfirmed: true, Limit: 2, Window: time.Hour, MinConversion: 100},
	}}
	known := perMinute("known", "sliding-log", 1, "")
	others := perMinute("others", "sliding-log", 1, guarantee)
	known.Limits[0].Until, others.Limits[0].Until = policy.UntilConfirmed, policy.UntilConfirmed
	return []policy.Policy{person, letter, known, others}
}

// countedUnder returns the policies under which a's demands count, or the one that denies it.
func countedUnder(a *limiter.Answer) string {
	if !a.Allowed {
		return "denied by " + a.Policy.Name
	}
	var names []string
	for i := range a.Demands {
		names = append(names, a.Demands[i].Policy.Name)
	}
	return strings.Join(names, " ")
}

// testKnownPassConversions admits persons who were confirmed before, and one other person, although conversions deny.
func testKnownPassConversions(t *testing.T, store store.Store) {
	for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
		e := NewEngine(t, store, limiter.Options{Identifiers: spelled}, insteadOfConversions(guarantee)...)
		*e.Now = Clock(t, "12:00:00")
		call := func(id string) *limiter.Call {
			return &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "person", Identifier: keys.Identifier(id)}}}
		}
		do := func(c *limiter.Call, want string) limiter.Answer {
			t.Helper()
			*e.Now = e.Now.Add(time.Second)
			a, err := e.Engine.Do(t.Context(), c)
			if got := countedUnder(&a); err != nil || got != want {
				t.Errorf("%s: %v is %q, want %q (%v)", guarantee, c.Demands[0].Identifier, got, want, err)
			}
			return a
		}
		e.wantConfirmed(t, do(call("anna"), "person letter").Receipt, false)
		do(call("alan"), "person letter")
		do(call("andy"), "person letter")
		do(call("bert"), "person letter")
		do(call("ada"), "person others")
		do(call("abe"), "denied by letter")

		again := call("anna")
		again.IdempotencyKey = "anna-" + string(guarantee)
		passed := do(again, "person known")
		if repeated := do(again, "person known"); !repeated.Replayed || repeated.Receipt != passed.Receipt {
			t.Errorf("%s: a repetition: %+v", guarantee, repeated)
		}
		do(call("anna"), "denied by letter")
		e.wantConfirmed(t, passed.Receipt, false)

		hold := call("anna")
		hold.Op, hold.Reserve = count.OpCheck, time.Minute
		held := do(hold, "person known")
		settle := call("anna")
		settle.Op, settle.Reservation = count.OpRecord, held.Reservation
		e.wantConfirmed(t, do(settle, "person known").Receipt, false)

		if err := e.Reset(t.Context(), "known", "ANNA"); err != nil {
			t.Fatal(err)
		}
		do(call("anna"), "denied by letter")
		*e.Now = e.Now.Add(2 * time.Minute)
		do(call("anna"), "person others") // like every other person
	}
}
