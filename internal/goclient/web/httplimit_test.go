package web_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

const policies = `
policies:
  - name: api
    limits: [{name: per-minute, algorithm: sliding-log, limit: 4, window: 1m}]
  - name: login
    limits:
      - {name: per-hour, algorithm: fixed-window, limit: 2, window: 1h}
      - {name: per-day, algorithm: fixed-window, limit: 100, window: 1d}
  - name: closed
    limits: [{algorithm: fixed-window, limit: 0, window: 1m}]
`

// ok is the service that is limited.
var ok = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if d, decided := httplimit.DecisionOf(r); decided {
		fmt.Fprintf(w, "%s %d", d.Policy, d.Used)
	}
})

// ask sends a request from address to h, with headers in pairs.
func ask(h http.Handler, method, path, address string, headers ...string) *http.Response {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = address
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, res *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// mustBe fails the test unless the answers to requests, one after the other, have these
// statuses.
func mustBe(t *testing.T, want string, answers ...*http.Response) {
	t.Helper()
	var got []int
	for _, a := range answers {
		got = append(got, a.StatusCode)
	}
	if text := strings.Trim(fmt.Sprint(got), "[]"); text != want {
		t.Errorf("statuses %s, want %s", text, want)
	}
}

func TestARouteIsLimited(t *testing.T) {
	s := serviceAt(t, policies)
	h := httplimit.New(s.Client(nil), nil).Policy("api")(ok)
	me := "203.0.113.7:4711"
	first := ask(h, "POST", "/", me)
	if text := body(t, first); text != "api 1" || first.Header.Get("X-RateLimit-Remaining") != "3" {
		t.Errorf("%q, %v", text, first.Header)
	}
	mustBe(t, "200 200 200 429 200", ask(h, "POST", "/", me), ask(h, "GET", "/", me), ask(h, "DELETE", "/", me),
		ask(h, "POST", "/", me), ask(h, "GET", "/", "203.0.113.8:1"))
	s.Advance(time.Minute + time.Second)
	mustBe(t, "200", ask(h, "POST", "/", me))
}

// TestARequestCostsOne of any method, so that a limit of five logins allows five, unless an option
// has another weight.
func TestARequestCostsOne(t *testing.T) {
	const me = "203.0.113.7:4711"
	for _, c := range []struct {
		name string
		opts httplimit.Options
		how  []httplimit.RuleOption
		want string
	}{
		{"by default", httplimit.Options{}, nil, "200 200 200 200 429"},
		{"by the rule", httplimit.Options{}, []httplimit.RuleOption{httplimit.Cost(2)}, "200 200 429 429 429"},
		{"by the method", httplimit.Options{Cost: httplimit.CostByMethod(1, 2)}, nil, "200 200 429 429 429"},
	} {
		h := httplimit.New(serviceAt(t, policies).Client(nil), &c.opts).Policy("api", c.how...)(ok)
		t.Run(c.name, func(t *testing.T) {
			mustBe(t, c.want, ask(h, "POST", "/", me), ask(h, "PUT", "/", me), ask(h, "PATCH", "/", me), ask(h, "DELETE", "/", me),
				ask(h, "POST", "/", me))
		})
	}
}

// TestDenialsAreToldAsRatelimitdTells compares with an answer of the service's own.
func TestDenialsAreToldAsRatelimitdTells(t *testing.T) {
	s := serviceAt(t, policies)
	h := httplimit.New(s.Client(nil), nil).Policy("login", httplimit.By(httplimit.Header("X-User")))(ok)
	for range 2 {
		mustBe(t, "200", ask(h, "GET", "/", "203.0.113.7:1", "X-User", "alice"))
	}
	got := ask(h, "GET", "/", "203.0.113.7:1", "X-User", "alice")
	mustBe(t, "429", got)
	own, err := http.Post(s.URL+"/v1/take", "application/json", strings.NewReader(`{"policy":"login","identifier":"alice"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Body.Close()
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "RateLimit-Policy", "Content-Type"} {
		if got.Header.Get(name) != own.Header.Get(name) || got.Header.Get(name) == "" {
			t.Errorf("%s: %q, ratelimitd says %q", name, got.Header.Get(name), own.Header.Get(name))
		}
	}
	if got.Header.Get("Retry-After") == "" || !strings.HasPrefix(got.Header.Get("RateLimit"), `"per-hour";r=0;t=`) {
		t.Errorf("%v", got.Header)
	}
	var problem struct {
		Type   string
		Status int
	}
	text := body(t, got)
	err = json.Unmarshal([]byte(text), &problem)
	if err != nil || problem.Status != 429 || !strings.HasSuffix(problem.Type, "quota-exceeded") {
		t.Errorf("%v: %s", err, text)
	}
	if strings.Contains(text, "alice") {
		t.Errorf("%s tells who asked", text)
	}
	never := ask(httplimit.New(s.Client(nil), nil).Policy("closed")(ok), "GET", "/", "203.0.113.7:1")
	if mustBe(t, "429", never); never.Header.Get("Retry-After") != "" || !json.Valid([]byte(body(t, never))) {
		t.Errorf("%v", never.Header)
	}
}

func TestSeveralPoliciesStandOrFallTogether(t *testing.T) {
	s := serviceAt(t, policies)
	limit := httplimit.New(s.Client(nil), nil)
	user := httplimit.By(httplimit.Header("X-User"))
	h := limit.All(httplimit.Use("api", httplimit.Cost(1)), httplimit.Use("login", user, httplimit.Cost(1)),
		httplimit.Use("api", httplimit.Cost(1)))(ok) // the same twice counts once
	for range 2 {
		mustBe(t, "200", ask(h, "POST", "/", "203.0.113.7:1", "X-User", "alice"))
	}
	mustBe(t, "429 429", ask(h, "POST", "/", "203.0.113.7:1", "X-User", "alice"), ask(h, "POST", "/", "203.0.113.7:1", "X-User", "alice"))
	mustBe(t, "200 200", ask(h, "POST", "/", "203.0.113.7:1", "X-User", "bob"), ask(h, "POST", "/", "203.0.113.7:1", "X-User", "carol"))
	mustBe(t, "429", ask(h, "POST", "/", "203.0.113.7:1", "X-User", "dave")) // the address has had its four
}

// TestTheSamePolicyForTwo has one rule for the address and one for the user.
func TestTheSamePolicyForTwo(t *testing.T) {
	s := serviceAt(t, policies)
	user := httplimit.By(httplimit.Header("X-User"))
	h := httplimit.New(s.Client(nil), nil).All(httplimit.Use("api"), httplimit.Use("api", user, httplimit.Cost(4)))(ok)
	mustBe(t, "200 429", ask(h, "GET", "/", "203.0.113.7:1", "X-User", "alice"), ask(h, "GET", "/", "203.0.113.8:1", "X-User", "alice"))
}

// TestLeavingAHeaderOutIsNoWayAround: who is not known is limited by address.
func TestLeavingAHeaderOutIsNoWayAround(t *testing.T) {
	s := serviceAt(t, policies)
	h := httplimit.New(s.Client(nil), nil).Policy("api", httplimit.By(httplimit.APIKey()), httplimit.Cost(4))(ok)
	mustBe(t, "200 429 200 200", ask(h, "GET", "/", "203.0.113.7:1"), ask(h, "GET", "/", "203.0.113.7:2"),
		ask(h, "GET", "/", "203.0.113.7:1", "X-API-Key", "203.0.113.7"), ask(h, "GET", "/", "203.0.113.8:1"))
}

func TestAServiceThatIsGone(t *testing.T) {
	s := serviceAt(t, policies)
	s.SetGone(true)
	lenient := httplimit.New(s.Client(nil), nil).Policy("api")(ok)
	strict := httplimit.New(s.Client(nil), &httplimit.Options{FailClosed: true}).Policy("api")(ok)
	open := httplimit.New(s.Client(&client.Options{OnUnavailable: client.FailOpen}), &httplimit.Options{FailClosed: true}).Policy("api")(ok)
	a, b, c := ask(lenient, "GET", "/", "203.0.113.7:1"), ask(strict, "GET", "/", "203.0.113.7:1"), ask(open, "GET", "/", "203.0.113.7:1")
	mustBe(t, "200 503 200", a, b, c)
	if b.Header.Get("Retry-After") != "1" || !json.Valid([]byte(body(t, b))) {
		t.Errorf("%v", b.Header)
	}
	if a.Header.Get("X-RateLimit-Limit") != "" || c.Header.Get("X-RateLimit-Limit") != "" {
		t.Errorf("%v, %v", a.Header, c.Header)
	}
}

// TestMistakesAreLogged, and don't stop the service that is limited.
func TestMistakesAreLogged(t *testing.T) {
	var log bytes.Buffer
	s := serviceAt(t, policies)
	opts := httplimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	h := httplimit.New(s.Client(nil), &opts).Policy("no-such", httplimit.By(httplimit.Header("X-User")))(ok)
	mustBe(t, "200", ask(h, "GET", "/", "203.0.113.7:1", "X-User", "needle"))
	if text := log.String(); !strings.Contains(text, "No policy of that name") || strings.Contains(text, "needle") {
		t.Errorf("the log is %q", text)
	}
}

func TestOptions(t *testing.T) {
	s := serviceAt(t, policies)
	opts := httplimit.Options{
		Skip: httplimit.SkipPaths("/healthz", "/static/"),
		Cost: httplimit.CostByMethod(0, 4),
		Denied: func(w http.ResponseWriter, _ *http.Request, d client.Decision) {
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, d.Policy)
		},
		Identify: httplimit.Combine(httplimit.User(), httplimit.Path()),
	}
	h := httplimit.New(s.Client(nil), &opts).Policy("api")(ok)
	const alice = "Basic YWxpY2U6c2VjcmV0"
	post := func(path string) *http.Response { return ask(h, "POST", path, "203.0.113.7:1", "Authorization", alice) }
	mustBe(t, "200 418 200", post("/a"), post("/a"), post("/b"))
	mustBe(t, "200 200 200 200", post("/healthz"), post("/healthz"), post("/static/x"), post("/static/x"))
	mustBe(t, "200 200 418", ask(h, "GET", "/a", "203.0.113.7:1", "Authorization", alice),
		post("/healthz/x"), post("/healthz/x"))
	teapot := post("/a")
	if text := body(t, teapot); text != "api" || teapot.Header.Get("Retry-After") == "" {
		t.Errorf("%q, %v", text, teapot.Header)
	}
}

// TestAProxyThatHidesItsClients is not their address: all would share one limit, or be skipped.
func TestAProxyThatHidesItsClients(t *testing.T) {
	s := serviceAt(t, policies)
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	l := httplimit.New(s.Client(nil), &httplimit.Options{
		TrustedProxies: proxies, Skip: httplimit.SkipNetworks(httplimit.IP(proxies...), proxies...),
	})
	byKey := l.Policy("api", httplimit.By(httplimit.APIKey()))(ok)
	for _, hidden := range []string{"unknown", "_hidden", "198.51.100.1, unknown"} {
		headers := []string{"X-Forwarded-For", hidden}
		mustBe(t, "400 400 400 200", ask(l.Policy("api")(ok), "GET", "/", "10.0.0.1:1", headers...),
			ask(l.Policy("api", httplimit.After(httplimit.Objects))(ok), "GET", "/", "10.0.0.1:1", headers...),
			ask(byKey, "GET", "/", "10.0.0.1:1", headers...),
			ask(byKey, "GET", "/", "10.0.0.1:1", append(headers, "X-Api-Key", "k")...))
		if text := body(t, ask(byKey, "GET", "/", "10.0.0.1:1", headers...)); !strings.Contains(text, "does not tell which address") {
			t.Errorf("%s: %s", hidden, text)
		}
	}
}

// TestNamesDrainNoAddress: a key that reads as an address is another caller than that address.
func TestNamesDrainNoAddress(t *testing.T) {
	s := serviceAt(t, policies)
	l := httplimit.New(s.Client(nil), &httplimit.Options{Cost: func(*http.Request) int64 { return 4 }})
	byKey, byAddress := l.Policy("api", httplimit.By(httplimit.APIKey()))(ok), l.Policy("api")(ok)
	mustBe(t, "200 429 200 429", ask(byKey, "GET", "/", "203.0.113.9:1", "X-Api-Key", "203.0.113.7"),
		ask(byKey, "GET", "/", "203.0.113.9:1", "X-Api-Key", "203.0.113.7"),
		ask(byAddress, "GET", "/", "203.0.113.7:1"), ask(byAddress, "GET", "/", "203.0.113.7:1"))
	skip := httplimit.SkipNetworks(httplimit.Header("X-Real-Ip"), netip.MustParsePrefix("203.0.113.0/24"))
	r := httptest.NewRequest("GET", "/", nil)
	if r.Header.Set("X-Real-Ip", "203.0.113.7"); !skip(r) {
		t.Error("an address from a header is in no network")
	}
}

// TestWhatNoLimitHolds is not let through: nobody gets around a limit by asking for more.
func TestWhatNoLimitHolds(t *testing.T) {
	s := serviceAt(t, policies)
	length := httplimit.CostOf(func(r *http.Request) int64 { return r.ContentLength })
	h := httplimit.New(s.Client(nil), nil).Policy("api", length)(ok)
	post := func(units int64) *http.Response {
		r := httptest.NewRequest("POST", "/", nil)
		r.ContentLength = units
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	mustBe(t, "413 413 200 429", post(5), post(1<<62), post(4), post(4))
}

// TestRulesBringLimits holds that a request is decided by the limit that its rule brings, and by the policy's where it brings
// none.
func TestRulesBringLimits(t *testing.T) {
	s := serviceAt(t, "policies: [{name: asked, limits: [{algorithm: sliding-log, limit: {from: request, max: 9, default: 1}, window: 1h}]}]")
	limit := int64(0)
	tariff := httplimit.LimitOf(func(*http.Request) int64 { return limit })
	h := httplimit.New(s.Client(nil), nil).Policy("asked", tariff)(ok)
	get := func(of int64) *http.Response {
		limit = of
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		return w.Result()
	}
	mustBe(t, "200 429 200 429 200 429", get(0), get(0), get(2), get(2), get(3), get(0))
}

// TestLongIdentitiesAreHashed rather than refused, which would let them pass.
func TestLongIdentitiesAreHashed(t *testing.T) {
	s := serviceAt(t, policies)
	h := httplimit.New(s.Client(nil), nil).Policy("api", httplimit.By(httplimit.Header("X-User")), httplimit.Cost(4))(ok)
	long := strings.Repeat("x", 2000)
	mustBe(t, "200 429 200 200 429", ask(h, "GET", "/", "203.0.113.7:1", "X-User", long), ask(h, "GET", "/", "203.0.113.7:1", "X-User", long),
		ask(h, "GET", "/", "203.0.113.7:1", "X-User", long+"y"),
		ask(h, "GET", "/", "203.0.113.7:1", "X-User", "\xff"), ask(h, "GET", "/", "203.0.113.7:1", "X-User", "\xff"))
}

// TestRoutesOfChi has a policy for some routes of a router.
func TestRoutesOfChi(t *testing.T) {
	s := ratelimittest.New(t, policies)
	limit := httplimit.New(s.Client(nil), nil)
	r := chi.NewRouter()
	r.With(limit.Policy("api", httplimit.Cost(2))).Post("/withdraw", ok)
	r.Post("/free", ok)
	for _, want := range []string{"200", "200", "429"} {
		mustBe(t, want+" 200", ask(r, "POST", "/withdraw", "203.0.113.7:1"), ask(r, "POST", "/free", "203.0.113.7:1"))
	}
}
