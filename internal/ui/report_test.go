package ui_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// reportOf returns what an instance reports that decided n calls of each outcome, as it travels.
func reportOf(t *testing.T, id string, n float64, offsetMS float64) ui.Report {
	t.Helper()
	at := time.Date(2026, 11, 29, 12, int(n), 0, 0, time.UTC)
	line := func(policy string, second int) json.RawMessage {
		return fmt.Appendf(nil, `{"time":%q,"policy":%q,"who":%q}`, at.Add(time.Duration(second)*time.Second).Format(time.RFC3339), policy, id)
	}
	used := n / 10
	text, err := json.Marshal(&ui.Report{
		State: ui.State{
			Instance: ui.Instance{Name: "host " + id, Version: "v1"}, Since: at,
			Policies: []ui.PolicyState{
				{Name: "login", Mode: "enforce", Decisions: ui.Decisions{Allowed: n, Denied: 2 * n, DeniedPerSecond: n}, Calls: ui.Calls{Denied: n}},
				{Name: "sms", Mode: "shadow", Decisions: ui.Decisions{WouldDeny: 100 * n, DeniedFor: ui.Reasons{Blocked: 0}}},
			},
			Confirmations: []ui.ConfirmationState{
				{Policy: "sms", Country: "DE", Sent: 5 * n, BoundUsed: &used}, {Policy: "sms", Country: id, Confirmed: n},
			},
			Store: ui.Store{Ready: true, Failures: n, LagSeconds: n}, Clock: ui.Clock{OffsetMS: &offsetMS, WithinTolerance: offsetMS > -50},
			Worst:    []ui.WorstKey{{Policy: "login", Key: "aa", Attempts: int64(n)}, {Policy: "sms", Key: "b" + id, Attempts: 7}},
			Audit:    []json.RawMessage{line("login", 30), line("sms", 0)},
			Warnings: []string{"look"},
		},
		Requests: ui.Histogram{Bounds: []float64{0.001, 0.01}, Counts: []float64{n, n, n}},
	})
	r := ui.Report{ID: id, Self: id == "A"}
	if err != nil || json.Unmarshal(text, &r) != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return r
}

// TestSumOfReports adds up what three instances report, of which one is slower, one is off, and each confirmed what another
// one sent.
func TestSumOfReports(t *testing.T) {
	page := ui.New(ui.Options{Instance: ui.Instance{Name: "host A"}, Policies: func() []ui.Policy { return nil }})
	reports := []ui.Report{reportOf(t, "A", 1, 3), reportOf(t, "B", 2, -80), reportOf(t, "C", 3, 5)}
	reports[2].Requests = ui.Histogram{Bounds: []float64{0.001, 0.01}, Counts: []float64{0, 9, 9}}
	for i := range reports { // each confirmed two of those that another one sent
		reports[i].Confirmations = append(reports[i].Confirmations, ui.ConfirmationState{Policy: "sms", Country: "DE", Confirmed: 2})
	}
	missing := []ui.Unanswered{{Instance: "D", Address: "10.0.0.4:7946", Reason: "it did not answer"}}
	everything := func(string) bool { return true }
	s := page.Sum(ui.ScopeInstances, reports, missing, everything)
	if s.Scope != "instances" || len(s.Instances) != 3 || s.Instances[1].ID != "B" || s.Instances[1].Decisions.Denied != 4 ||
		!reflect.DeepEqual(s.Unanswered, missing) || s.Instance.Name != "host A" {
		t.Errorf("%+v, %+v", s.Instances, s.Unanswered)
	}
	if want := (ui.Decisions{Allowed: 6, Denied: 12, WouldDeny: 600, DeniedPerSecond: 6}); s.Decisions != want {
		t.Errorf("%+v, want %+v", s.Decisions, want)
	}
	if p := s.Policies; len(p) != 2 || p[0].Name != "sms" || p[1].Denied != 12 || p[1].Calls.Denied != 6 {
		t.Errorf("%+v", p)
	}
	three := 0.3
	if want := (ui.ConfirmationState{
		Policy: "sms", Country: "DE", Sent: 30, Confirmed: 6, Unconfirmed: 24, BoundUsed: &three,
	}); len(s.Confirmations) != 1 || !reflect.DeepEqual(s.Confirmations[0], want) {
		t.Errorf("%+v, want %+v", s.Confirmations, want)
	}
	if w := s.Worst; len(w) != 4 || w[0] != (ui.WorstKey{Policy: "sms", Key: "bA", Attempts: 7}) || w[3].Attempts != 6 {
		t.Errorf("%+v", w)
	}
	if *s.Latency.P50MS <= 1 || *s.Latency.P99MS <= *s.Latency.P50MS || *s.Instances[0].Latency.P99MS > 1 {
		t.Errorf("%v, %v", *s.Latency.P50MS, *s.Latency.P99MS)
	}
	if *s.Clock.OffsetMS != -80 || s.Clock.WithinTolerance || s.Store.Failures != 6 || s.Store.LagSeconds != 3 || !s.Store.Ready {
		t.Errorf("%+v, %+v", s.Clock, s.Store)
	}
	if !slices.Equal(s.Warnings, []string{"look", "B: look", "C: look"}) || !s.Since.Equal(reports[0].Since) {
		t.Errorf("%q since %v", s.Warnings, s.Since)
	}
	var newest struct{ Who, Policy string }
	if err := json.Unmarshal(s.Audit[0], &newest); err != nil || newest.Who != "C" || newest.Policy != "login" || len(s.Audit) != 6 {
		t.Errorf("%s", s.Audit)
	}
	only := page.Sum(ui.ScopeInstances, reports, nil, func(policy string) bool { return policy == "login" })
	if len(only.Policies) != 1 || len(only.Confirmations) != 0 || len(only.Worst) != 1 || len(only.Audit) != 3 ||
		only.Decisions.WouldDeny != 0 || only.Instances[0].Decisions.WouldDeny != 0 {
		t.Errorf("a caller that may ask about login sees %+v", only)
	}
	none := page.Sum(ui.ScopeInstance, nil, missing, everything)
	if none.Instance.Name != "host A" || none.Store.Ready || none.Policies == nil {
		t.Errorf("of an instance that does not answer: %+v", none)
	}
}

// TestSumOfHistories loses no decisions where samples of instances are of different times.
func TestSumOfHistories(t *testing.T) {
	ms := func(n float64) *float64 { return &n }
	history := func(first, step int64, rates ...float64) (h ui.History) {
		for i, rate := range append(rates[:1:1], rates...) {
			h.Times = append(h.Times, first+step*int64(i))
			h.Allowed, h.Denied, h.WouldDeny = append(h.Allowed, rate), append(h.Denied, 2*rate), append(h.WouldDeny, 0)
			h.P50MS, h.P99MS, h.StoreP99MS = append(h.P50MS, ms(rate)), append(h.P99MS, ms(rate)), append(h.StoreP99MS, nil)
		}
		return h
	}
	one, two := history(1000, 15, 1, 0, 4, 2), history(1007, 15, 0, 9, 0, 3)
	sum := ui.SumOfHistories([]ui.History{one, {}, two})
	if sum.Times[0] != 1000 || sum.Times[1] != 1015 || sum.Times[len(sum.Times)-1] != 1067 {
		t.Errorf("%v", sum.Times)
	}
	allowed := 0.0
	for i := 1; i < len(sum.Times); i++ {
		allowed += sum.Allowed[i] * float64(sum.Times[i]-sum.Times[i-1])
		if sum.Denied[i] < 2*sum.Allowed[i]-0.01 || sum.StoreP99MS[i] != nil {
			t.Errorf("%+v", sum)
		}
	}
	if want := 15.0 * (7 + 12); allowed < want-0.5 || allowed > want+25 { // the last sample is taken to go on
		t.Errorf("%v allowed, want %v", allowed, want)
	}
	if *sum.P99MS[2] != 9 || *sum.P99MS[4] != 3 {
		t.Errorf("%v, %v", *sum.P99MS[2], *sum.P99MS[4])
	}
	if alone := ui.SumOfHistories([]ui.History{two}); !reflect.DeepEqual(alone, two) {
		t.Errorf("%+v", alone)
	}
	if none := ui.SumOfHistories(nil); none.Times == nil || none.StoreP99MS == nil {
		t.Errorf("%+v", none)
	}
}

// TestPageOfSeveralInstances names the instance that does not answer, and narrows to one.
func TestPageOfSeveralInstances(t *testing.T) {
	page := ui.New(ui.Options{Members: func() ui.Members {
		return ui.Members{View: 3, Mode: "owners", Installed: true, List: []ui.Member{
			{ID: "A", Address: "10.0.0.1:7946", Share: 0.4, Self: true}, {ID: "B", Address: "10.0.0.2:7946", Share: 0.3}, {ID: "D", Share: 0.3},
		}}
	}})
	reports := []ui.Report{reportOf(t, "A", 1, 3), reportOf(t, "B", 2, 3)}
	missing := []ui.Unanswered{{Instance: "D", Address: "10.0.0.4:7946", Reason: "it did not answer"}}
	var asked atomic.Value // the instance whose history is shown
	engine := limiter.New(embedded.New(nil), nil)
	server := httptest.NewServer(api.New(engine, &api.Options{UI: &api.UI{
		Page: ui.Page(),
		State: func(_ context.Context, instance string, may func(string) bool) (any, error) {
			if instance == "10.0.0.2:7946" {
				return page.Sum(ui.ScopeInstance, reports[1:], nil, may), nil
			}
			return page.Sum(ui.ScopeInstances, reports, missing, may), nil
		},
		History: func(_ context.Context, instance, _ string, _ func(string) bool) (any, error) {
			asked.Store(instance)
			return ui.SumOfHistories(nil), nil
		},
	}}))
	t.Cleanup(server.Close)
	phone := openTab(t, 360, 740, false)
	phone.open(server.URL)
	phone.see("#members", "10.0.0.1:7946")
	phone.fits(360)
	b := openTab(t, 1200, 900, false)
	b.open(server.URL)
	b.see("#instance", "Shows 2 of 3 instances. Asked: host A")
	b.see("#notices", "Without the figures of D at 10.0.0.4:7946: it did not answer.")
	b.see("#policies tr:nth-child(2)", "login\t3\t6\t")
	b.see("#members", "A (asked)\t10.0.0.1:7946\t40.0 %\t1.0\t2")
	b.see("#members", "D\tnone\t30.0 %\t–\t–")
	b.see("#tiles", "2 of 3")
	b.do(chromedp.SetValue(css("#shown"), "10.0.0.2:7946"))
	b.do(chromedp.Evaluate[chromedp.Void](`document.querySelector("#shown").dispatchEvent(new Event("change"))`))
	b.see("#instance", "host B")
	b.see("#policies tr:nth-child(2)", "login\t2\t4\t")
	if text := b.text("#notices"); text != "look" && text != "B: look" {
		t.Errorf("of the one that answers: %q", text)
	}
	for late := time.Now().Add(time.Minute); asked.Load() != "10.0.0.2:7946"; <-time.After(20 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("the charts are of %q", asked.Load())
		}
	}
	b.quiet()
}
