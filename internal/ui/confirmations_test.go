package ui_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// TestConfirmationsOfADay holds that the page has what was sent and confirmed by policy and country, also in money, for a day.
func TestConfirmationsOfADay(t *testing.T) {
	now := time.Date(2026, 11, 2, 9, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	registry := prometheus.NewRegistry()
	measured := metrics.New(registry, clock)
	engine := limiter.New(embedded.New(&embedded.Options{Now: clock}), &limiter.Options{
		Now: clock, Identifiers: identifier.Reader,
		Observer: limiter.Observer{Decided: measured.Observe, Confirmed: measured.Confirmed, Refunded: measured.Refunded},
	})
	measured.Countries = metrics.Countries{Names: identifier.Countries(), KeyOf: engine.KeyOf}
	inForce := []policy.Policy{
		{
			Name: "send", Normalize: policy.Normalize{Form: policy.FormE164},
			Derive: []policy.Derivation{{Policy: "country", From: policy.PartCountry}},
			Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: time.Hour}},
		},
		{Name: "country", Limits: []policy.Limit{{Algorithm: "conversion", Unconfirmed: true, Limit: 8, MinConversion: 50, Window: time.Hour}}},
		{Name: "money", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1000, Window: time.Hour, Until: policy.UntilConfirmed}}},
	}
	if err := engine.SetPolicies(inForce); err != nil {
		t.Fatal(err)
	}
	measured.SetPolicies(engine.Policies())
	page := ui.New(ui.Options{Metrics: registry, Now: clock, Policies: func() []ui.Policy { return nil }})
	send := func(number keys.Identifier) (receipt string) {
		answer, err := engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			{Policy: "send", Identifier: number}, {Policy: "money", Identifier: "all", Cost: 75},
		}})
		if err != nil || !answer.Allowed {
			t.Fatal(answer, err)
		}
		return answer.Receipt
	}
	var receipt string
	for _, number := range []keys.Identifier{"+4915112345678", "+4915112345679", "+4915112345670", "+436641234567"} {
		receipt = send(number)
	}
	if _, err := engine.Confirm(t.Context(), receipt); err != nil {
		t.Fatal(err)
	}
	if err := engine.Refund(t.Context(), send("+33612345678")); err != nil {
		t.Fatal(err)
	}
	three, one := 0.375, 0.125
	want := []ui.ConfirmationState{
		{Policy: "money", Sent: 300, Confirmed: 75, Unconfirmed: 225},
		{Policy: "country", Country: "DE", Sent: 3, Unconfirmed: 3, BoundUsed: &three},
		{Policy: "country", Country: "AT", Sent: 1, Confirmed: 1, BoundUsed: &one},
		{Policy: "country", Country: "FR", BoundUsed: &one}, // was refunded: it was used for some minutes
	}
	everything := func(string) bool { return true }
	if got := stateOf(page, everything).Confirmations; !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := stateOf(page, func(policy string) bool { return policy == "money" }).Confirmations; !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("who may ask about money sees %+v", got)
	}
	wait := func(hours int) {
		for range hours * 60 {
			page.Read(t.Context())
			now = now.Add(time.Minute)
		}
	}
	wait(23)
	send("+4915112345678")
	if got := stateOf(page, everything).Confirmations; len(got) != 3 || got[0].Sent != 375 || got[0].Unconfirmed != 300 {
		t.Errorf("within the day: %+v", got)
	}
	wait(2)
	want = []ui.ConfirmationState{{Policy: "money", Sent: 75, Unconfirmed: 75}, {Policy: "country", Country: "DE", Sent: 1, Unconfirmed: 1}}
	got := stateOf(page, everything).Confirmations
	for i := range got {
		got[i].BoundUsed = nil
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("a day later: %+v, want %+v", got, want)
	}
	wait(24)
	if got := stateOf(page, everything).Confirmations; len(got) != 0 {
		t.Errorf("two days later: %+v", got)
	}
}
