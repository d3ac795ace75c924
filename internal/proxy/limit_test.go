package proxy_test

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// byPlan is a route whose policy takes its limit from a header, at most 5, with a default of 1.
const byPlan = "- {name: all, path: /, limits: [{policy: asked, identify: 'header:X-Tenant', limit: 'header:X-Plan-Limit'}]}"

// plan answers with the header of the limit, as the application sees it.
func plan(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, cmp.Or(strings.Join(r.Header["X-Plan-Limit"], ","), "none"))
}

// TestLimitsOfHeaders holds that the limit of a trusted proxy decides, and the policy's default if there is none.
func TestLimitsOfHeaders(t *testing.T) {
	f := newFront(t, byPlan, plan, trust("127.0.0.0/8"))
	f.mustBe(200, "GET", "/", "", "X-Tenant", "acme")
	f.mustBe(429, "GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "")
	res := f.mustBe(200, "GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "3")
	if got := res.Header.Get("X-Ratelimit-Limit") + " " + res.Header.Get("X-Ratelimit-Remaining"); got != "3 1" {
		t.Errorf("limit and remaining are %s", got)
	}
	f.mustBe(200, "GET", "/", "", "X-Tenant", "acme", "x-plan-limit", "3")
	f.mustBe(429, "GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "3")
	if _, body := f.send(f.request("GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "5")); body != "5" {
		t.Errorf("the application sees %s", body)
	}
}

// TestLimitsOfClients holds that a limit that no trusted proxy sent is ignored, and not passed on.
func TestLimitsOfClients(t *testing.T) {
	f := newFront(t, byPlan, plan, trust("192.0.2.0/24"))
	if _, body := f.send(f.request("GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "5", "X_Plan_Limit", "5")); body != "none" {
		t.Errorf("the application sees %s", body)
	}
	f.mustBe(429, "GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "5")
	f.mustBe(200, "GET", "/", "", "X-Tenant", "other", "X-Plan-Limit", "none") // which is not read
}

// TestLimitsThatClientsTakeAway holds that a client can not remove the limit by naming its header in Connection.
func TestLimitsThatClientsTakeAway(t *testing.T) {
	f := newFront(t, byPlan, plan, trust("127.0.0.0/8"))
	_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\nX-Tenant: acme\r\nX-Plan-Limit: 4\r\nConnection: close, X-Plan-Limit\r\n\r\n")
	if answer, err := io.ReadAll(answers); !strings.Contains(string(answer), "\r\nX-Ratelimit-Limit: 4\r\n") || err != nil {
		t.Errorf("%s, %v", answer, err)
	}
}

// TestWrongLimitsOfHeaders holds that a wrong limit is refused with the name of the header, and nothing counts.
func TestWrongLimitsOfHeaders(t *testing.T) {
	f := newFront(t, byPlan, plan, trust("127.0.0.0/8"))
	for _, c := range [][]string{{"6"}, {"0"}, {"-1"}, {"1.5"}, {"many"}, {"3, 3"}, {"3", "5"}, {"99999999999999999999"}} {
		headers := []string{"X-Tenant", "acme"}
		for _, value := range c {
			headers = append(headers, "X-Plan-Limit", value)
		}
		res, body := f.send(f.request("GET", "/", "", headers...))
		const want = `"detail":"It must be one whole number from 1 to 5, the policy's max.","field":"X-Plan-Limit"`
		if res.StatusCode != 400 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", c, res.StatusCode, body)
		}
	}
	f.mustHaveUsed(0, "asked", "acme")
	if !strings.Contains(f.log.String(), "X-Plan-Limit: It must be one whole number") {
		t.Errorf("logged %s", f.log)
	}
}

// TestLimitsOfBytes holds that the limit applies to the check before a request, and to the bytes that are charged after
// it.
func TestLimitsOfBytes(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: asked, identify: all, charge: response-bytes, limit: 'header:X-Plan-Limit'}]}", plan,
		trust("127.0.0.0/8"))
	f.mustBe(200, "GET", "/", "", "X-Plan-Limit", "5")
	f.mustBe(429, "GET", "/", "")
	f.mustBe(200, "GET", "/", "", "X-Plan-Limit", "5")
}

// TestPoliciesThatTakeNoLimitAnyMore holds that requests fail, and the log has the reason, if the policy no longer
// takes a limit from requests.
func TestPoliciesThatTakeNoLimitAnyMore(t *testing.T) {
	f := newFront(t, byPlan, plan, trust("127.0.0.0/8"))
	if err := f.engine.SetPolicies([]policy.Policy{aPolicy("asked", 2)}); err != nil {
		t.Fatal(err)
	}
	f.mustBe(200, "GET", "/", "", "X-Tenant", "acme")
	res, body := f.send(f.request("GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "5"))
	if res.StatusCode != 500 || !strings.Contains(f.log.String(), "takes no limit from requests: remove limit: from the route") {
		t.Errorf("%d %s, logged %s", res.StatusCode, body, f.log)
	}
	if err := f.engine.SetPolicies(policies[:1]); err != nil {
		t.Fatal(err)
	}
	f.mustBe(500, "GET", "/", "", "X-Tenant", "acme", "X-Plan-Limit", "5")
}

// TestLimitsThatNobodyMayBring holds that a route with limits from a header is an error without trusted proxies.
func TestLimitsThatNobodyMayBring(t *testing.T) {
	routes, err := proxy.Parse("p.yaml", []byte("routes:\n- {path: /a, limits: []}\n"+byPlan), nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = proxy.New(nil, &proxy.Options{Upstream: &url.URL{Scheme: "http"}, Routes: routes})
	if err == nil || !strings.Contains(err.Error(), "routes[1].limits[0].limit: X-Plan-Limit counts only from trusted proxies") {
		t.Errorf("the error is %v", err)
	}
}
