package ui_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/audit"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// pictures makes TestPictures write those that the docs show.
var pictures = flag.Bool("pictures", false, "write docs/images/ui-light.png and ui-dark.png")

// hour is an instance on a clock of its own, one of three, and its page.
type hour struct {
	now      time.Time
	measured *metrics.Metrics
	engine   *limiter.Engine
	page     *ui.UI
	server   *httptest.Server
	audit    *audit.Log
	decided  map[string][3]float64 // allowed, denied and would-deny, by policy
}

// stateOf returns how an instance is that is alone.
func stateOf(page *ui.UI, may func(policy string) bool) ui.State {
	return page.Sum(ui.ScopeInstance, []ui.Report{page.Report()}, nil, may)
}

// lines hands on the audit log's.
type lines func(line []byte)

func (l lines) Write(line []byte) (int, error) {
	l(line)
	return len(line), nil
}

func newHour(t *testing.T) *hour {
	t.Helper()
	h := &hour{now: time.Now().Truncate(time.Second).Add(-time.Hour - time.Minute), decided: make(map[string][3]float64)}
	clock := func() time.Time { return h.now }
	registry := prometheus.NewRegistry()
	h.measured = metrics.New(registry, clock)
	store := embedded.New(&embedded.Options{Now: clock})
	observer := limiter.Observer{Decided: h.measured.Observe, Called: h.measured.ObserveCall}
	h.engine = limiter.New(store, &limiter.Options{Now: clock, Observer: observer, Feed: store})
	window := func(name string, limit int64, length time.Duration) []policy.Limit {
		return []policy.Limit{{Name: name, Algorithm: "sliding-log", Limit: limit, Window: length}}
	}
	inForce := []policy.Policy{
		{Name: "api", Limits: []policy.Limit{{Name: "sustained", Algorithm: "token-bucket", Limit: 120, Window: time.Minute, Burst: 60}}},
		{Name: "login", Limits: window("per-15m", 5, 15*time.Minute)},
		{Name: "search", Mode: policy.ModeShadow, Limits: window("per-minute", 6, time.Minute)},
		{Name: "signup", Limits: window("per-day", 3, 24*time.Hour)},
		{Name: "sms-send", Limits: window("per-hour", 10, time.Hour)},
	}
	if err := h.engine.SetPolicies(inForce); err != nil {
		t.Fatal(err)
	}
	h.measured.SetPolicies(h.engine.Policies())
	h.measured.SetClockOffset(3 * time.Millisecond)
	h.page = ui.New(ui.Options{
		Instance: ui.Instance{
			Name: "limits-1, process 7", Version: "v1.0.0", Started: h.now.Add(-50 * time.Hour), Store: "cassandra", Namespace: "default",
			ClockToleranceMS: 100,
		},
		Metrics: registry, Now: clock, Policies: h.policies, Worst: h.worst,
		Members: membersOfHour,
	})
	h.audit = audit.New(slog.New(slog.NewJSONHandler(lines(h.page.AuditLine), nil)), clock)
	h.server = httptest.NewServer(api.New(h.engine, &api.Options{Now: clock, Audit: h.audit, UI: &api.UI{
		Page: ui.Page(),
		State: func(_ context.Context, _ string, may func(string) bool) (any, error) {
			own := h.page.Report()
			own.Self = true
			idle := ui.Report{State: ui.State{Instance: own.Instance, Since: own.Since, Store: ui.Store{Ready: true}, Clock: own.Clock}}
			all := []ui.Report{own, idle, idle}
			for i, m := range membersOfHour().List {
				all[i].ID = m.ID
			}
			return h.page.Sum(ui.ScopeInstances, all, nil, may), nil
		},
		History: func(_ context.Context, _, policy string, _ func(string) bool) (any, error) {
			return ui.SumOfHistories([]ui.History{h.page.History(func(name string) bool { return policy == "" || policy == name })}), nil
		},
	}, Shadow: h.shadow}))
	t.Cleanup(h.server.Close)
	return h
}

// membersOfHour are the instance and two that nobody asks.
func membersOfHour() ui.Members {
	return ui.Members{View: 12, Mode: "owners", Installed: true, List: []ui.Member{
		{ID: "7QK3M2XWYB", Address: "10.0.0.11:7946", Share: 0.338, Self: true},
		{ID: "C4ZTP6NHVA", Address: "10.0.0.12:7946", Share: 0.329},
		{ID: "XR5LEG2JDU", Address: "10.0.0.13:7946", Share: 0.333},
	}}
}

// shadow reports the denials of a policy in mode shadow within the hour, by four callers.
func (h *hour) shadow(_ context.Context, name string) encode.Shadow {
	sums, since, callers := h.decided[name], h.now.Add(-time.Hour), int64(4)
	would, calls := int64(sums[2]), int64(sums[0]+sums[2])
	span := encode.ShadowSpan{Start: h.now.UTC().Truncate(time.Hour), Calls: calls, WouldDeny: would, Callers: &callers}
	return encode.Shadow{
		Scope: encode.ScopeInstances, Since: &since, Calls: calls, WouldDeny: would, Callers: &callers,
		Limits: []encode.ShadowLimit{
			{Name: "per-minute", WouldDeny: would, Callers: &callers, Hours: []encode.ShadowSpan{span}, Minutes: []encode.ShadowSpan{}},
		},
		Instances: []encode.ShadowInstance{{Instance: "7QK3M2XWYB", Since: since, Calls: calls}}, Unanswered: []encode.Unanswered{},
	}
}

func (h *hour) policies() (all []ui.Policy) {
	for _, p := range h.engine.Policies() {
		all = append(all, ui.Policy{Name: p.Name, Mode: string(p.Mode)})
	}
	return all
}

func (h *hour) worst(policy string, top int) (worst []ui.WorstKey) {
	r, _ := h.measured.Overshoot(policy, top)
	for _, w := range r.Worst {
		worst = append(worst, ui.WorstKey{Policy: policy, Key: hex.EncodeToString(w.Key.Bytes()), Attempts: w.Attempts})
	}
	return worst
}

// take takes a unit for a caller of a policy.
func (h *hour) take(t *testing.T, name, caller string) {
	t.Helper()
	d, err := h.engine.Take(t.Context(), limiter.Demand{Policy: name, Identifier: keys.Identifier(caller)})
	if err != nil {
		t.Fatal(err)
	}
	sums := h.decided[name]
	switch {
	case !d.Allowed:
		sums[1]++
	case !d.WouldAllow:
		sums[2]++
	default:
		sums[0]++
	}
	h.decided[name] = sums
}

// pass has an hour pass in which callers come and go, and some don't stop for a quarter of it.
func (h *hour) pass(t *testing.T) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 2))
	for step := range 720 {
		h.now = h.now.Add(5 * time.Second)
		daily := 1 + 0.35*math.Sin(float64(step)/120) + 0.1*random.Float64()
		attack := step > 400 && step < 580
		for range int(40 * daily) {
			h.take(t, "api", fmt.Sprint("caller ", random.IntN(60)))
		}
		for range int(9 * daily) {
			h.take(t, "search", fmt.Sprint("caller ", random.IntN(24)))
			h.take(t, "login", fmt.Sprint("caller ", random.IntN(900)))
		}
		if random.IntN(3) == 0 {
			h.take(t, "signup", fmt.Sprint("caller ", random.IntN(400)))
		}
		for range 3 {
			h.take(t, "sms-send", fmt.Sprint("caller ", random.IntN(500)))
		}
		if attack {
			for range 8 + random.IntN(10) {
				h.take(t, "sms-send", fmt.Sprint("attacker ", min(random.IntN(6), random.IntN(6))))
			}
		}
		for range 60 {
			took := 1.2e-3 * math.Exp(random.NormFloat64()/2)
			if attack {
				took *= 1.4
			}
			h.measured.ObserveHTTP("/v1/take", 200, time.Duration(took*float64(time.Second)), "")
			h.measured.ObserveStore(t.Context(), "write_read", time.Duration(0.8*took*float64(time.Second)), nil)
		}
		h.page.Read(t.Context())
	}
	h.now = h.now.Add(2 * time.Second)
}

// TestHour holds that the figures are those of the decisions, and that an hour later they are gone.
func TestHour(t *testing.T) {
	h := newHour(t)
	h.pass(t)
	everything := func(string) bool { return true }
	state := stateOf(h.page, everything)
	if len(state.Policies) != 5 || state.Policies[0].Name != "api" {
		t.Fatalf("%d policies: %+v", len(state.Policies), state.Policies)
	}
	for _, p := range state.Policies {
		if got := [3]float64{p.Allowed, p.Denied, p.WouldDeny}; got != h.decided[p.Name] {
			t.Errorf("%s: %v allowed, denied and would-deny, want %v", p.Name, got, h.decided[p.Name])
		}
		if got := [3]float64{p.Calls.Allowed, p.Calls.Denied, p.Calls.WouldDeny}; got != h.decided[p.Name] {
			t.Errorf("%s: %v calls allowed, denied and would-deny, want %v", p.Name, got, h.decided[p.Name])
		}
	}
	if len(state.Worst) != 10 || state.Worst[0].Attempts < state.Worst[9].Attempts {
		t.Errorf("worst: %v", state.Worst)
	}
	if p50 := state.Latency.P50MS; p50 == nil || *p50 < 0.8 || *p50 > 1.8 {
		t.Errorf("p50 is %v", p50)
	}
	history := h.page.History(func(name string) bool { return name == "sms-send" })
	var denied float64
	for _, perSecond := range history.Denied[1:] {
		denied += 15 * perSecond
	}
	if math.Abs(denied-h.decided["sms-send"][1]) > 5 || len(history.Times) != 241 {
		t.Errorf("%d points with %v denials, want %v", len(history.Times), denied, h.decided["sms-send"])
	}
	only := stateOf(h.page, func(policy string) bool { return policy == "login" })
	if len(only.Policies) != 1 || only.Decisions.Denied != h.decided["login"][1] {
		t.Errorf("who may ask about login sees %+v", only.Policies)
	}
	for range 720 {
		h.now = h.now.Add(5 * time.Second)
		h.page.Read(t.Context())
	}
	if d := stateOf(h.page, everything).Decisions; d != (ui.Decisions{}) {
		t.Errorf("an hour later: %+v", d)
	}
}

// TestPictures takes a picture of the page in both themes, small enough for the docs. With -pictures it writes them there.
func TestPictures(t *testing.T) {
	h := newHour(t)
	h.pass(t)
	for name, who := range map[string]string{"override.set": "ops-anna", "explain": "support"} {
		h.audit.Did(t.Context(), &audit.Act{Name: name, Who: who, Policy: "sms-send", Key: "5f0c9d1e77ab42c3"})
	}
	for name, dark := range map[string]bool{"light": false, "dark": true} {
		b := openTab(t, 1000, 784, dark)
		b.open(h.server.URL)
		b.see("#decisions-chart", "Denied")
		b.quiet()
		picture, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if *pictures {
			if err := os.WriteFile("../../docs/images/ui-"+name+".png", picture, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(picture, []byte("\x89PNG")) || len(picture) > 150_000 {
			t.Errorf("%s: a picture of %d bytes", name, len(picture))
		}
	}
}
