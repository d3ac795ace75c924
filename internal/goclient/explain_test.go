package goclient_test

import (
	"context"
	"net/http"
	"reflect"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// TestExplainTellsWhatDenies asks about somebody whose limit is used up.
func TestExplainTellsWhatDenies(t *testing.T) {
	c := newService(t).overHTTP(nil)
	him := one("sms-send", "him")
	him.Cost = 3
	if _, err := c.Take(t.Context(), him); err != nil {
		t.Fatal(err)
	}
	e, err := c.Explain(t.Context(), "sms-send", "him")
	if err != nil || e.Allowed || e.Because != client.BecauseLimit || !reflect.DeepEqual(e.DeniedBy, []string{"per-hour"}) {
		t.Errorf("%+v, %v", e, err)
	}
	if len(e.Limits) != 1 || e.Limits[0].Used != 3 || e.Limits[0].PolicyLimit != 3 || e.RetryAfter <= 0 || e.RetryAfter > time.Hour {
		t.Errorf("%+v", e)
	}
	_, err = c.Explain(t.Context(), "nosuch", "him")
	mustBe(t, err, client.ErrUnknownPolicy, client.RecordedNo)
	_, err = c.Explain(t.Context(), "sms-send", "\xff")
	mustBe(t, err, client.ErrInvalid, client.RecordedNo)
}

// explanation has every member that an answer may have.
const explanation = `{"policy":"sms-send","key":"5fec","allowed":false,"would_allow":true,"because":"block","detail":"It is blocked.",
	"retry_after_ms":null,"denied_by":["per-hour","per-day"],"mode":"shadow","guarantee":"counted","degraded":true,"limits":[
	{"name":"per-hour","algorithm":"sliding-log","limit":50,"policy_limit":10,"window_ms":3600000,"allowed":true,"used":10,
	"remaining":40,"reset_after_ms":1000,"retry_after_ms":0,"would_deny":true}],
	"override":{"key":"5fec","policy":"sms-send","kind":"limits","limits":[{"name":"per-hour","limit":50,"burst":7}],
	"expires_at":"2026-11-21T10:00:00Z","expires_in_ms":3600000,"made_at":"2026-11-21T09:00:00Z","by":"operator"},
	"block":{"until":"2026-11-21T11:00:00.5Z","strikes":2},"reset_at":"2026-11-20T00:00:00Z","new":{"member":[1]},
	"derived":[{"policy":"sms-prefix","because":"room","override":null,"block":null,"reset_at":null}]}`

// TestExplanationIsReadWhole reads an answer with every member, and refuses other texts.
func TestExplanationIsReadWhole(t *testing.T) {
	s := newService(t)
	body := explanation
	s.instead = func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
		return true
	}
	c := s.overHTTP(&client.Options{OnUnavailable: client.FailOpen})
	got, err := c.Explain(t.Context(), "sms-send", "him")
	at := func(hour, ms int) time.Time { return time.Date(2026, 11, 21, hour, 0, 0, ms*1e6, time.UTC) }
	want := client.Explanation{
		Policy: "sms-send", Key: "5fec", WouldAllow: true, Because: client.BecauseBlock, Detail: "It is blocked.",
		RetryAfter: client.Never, DeniedBy: []string{"per-hour", "per-day"}, Mode: client.ModeShadow, Guarantee: "counted",
		Degraded: true, Limits: []client.LimitExplanation{{PolicyLimit: 10, LimitDecision: client.LimitDecision{
			Name: "per-hour", Algorithm: "sliding-log", Limit: 50, Window: time.Hour, Allowed: true, Used: 10, Remaining: 40,
			ResetAfter: time.Second, Shadow: true, WouldDeny: true,
		}}},
		Override: &client.OverrideInForce{
			Kind: client.OverrideLimits, Limits: []client.OverrideLimit{{Name: "per-hour", Limit: 50, Burst: 7}},
			ExpiresAt: at(10, 0), MadeAt: at(9, 0), By: "operator",
		},
		Block: &client.Block{Until: at(11, 500), Strikes: 2}, ResetAt: time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC),
		Derived: []client.Explanation{{Policy: "sms-prefix", Because: client.BecauseRoom}},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for _, body = range []string{`{}`, `[]`, `{"because":"room"`, `{"because":"room","reset_at":"yesterday"}`,
		`{"because":"room","derived":[{}]}`, `{"because":"room","derived":[null]}`, `{"because":"room","limits":[{"window_ms":-1}]}`} {
		_, err := c.Explain(t.Context(), "sms-send", "him")
		mustBe(t, err, client.ErrUnavailable, client.RecordedNo)
	}
}

// TestConfirmHasNoDecision refuses to make one alone, and what no confirm has.
func TestConfirmHasNoDecision(t *testing.T) {
	s := newService(t)
	c := s.overHTTP(&client.Options{OnUnavailable: client.FailOpen})
	_, err := c.Do(t.Context(), client.Call{Op: client.OpConfirm, Receipt: "r"})
	mustBe(t, err, client.ErrInvalid, client.RecordedYes)
	results, err := c.Batch(t.Context(), []client.Call{
		{Op: client.OpConfirm, Receipt: "r", IdempotencyKey: "k"},
		{Op: client.OpTake, Receipt: "r", Demands: []client.Demand{one("api", "x")}},
	})
	if err != nil || len(s.requests()) != 0 {
		t.Errorf("%v after %d requests", err, len(s.requests()))
	}
	mustBe(t, results[0].Err, client.ErrInvalid, client.RecordedYes)
	mustBe(t, results[1].Err, client.ErrInvalid, client.RecordedNo)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	mustBe(t, c.Confirm(ended, "r"), context.Canceled, client.RecordedYes)
}
