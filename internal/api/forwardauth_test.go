package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/clients/conformance"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// gateways trusts the address of httptest, and permits all sources of identifiers.
var gateways = ForwardAuth{
	TrustedProxies: mustProxies("192.0.2.0/24,10.0.0.0/8"), Identify: mustSources("ip", "header:X-Tenant", "api-key", "all"),
}

func mustProxies(text string) origin.Proxies {
	proxies, err := origin.ParseProxies(text)
	if err != nil {
		panic(err)
	}
	return proxies
}

func mustSources(texts ...string) (sources []origin.Source) {
	for _, text := range texts {
		source, err := origin.ParseSource(text)
		if err != nil {
			panic(err)
		}
		sources = append(sources, source)
	}
	return sources
}

const forwardAuth = "/v1/forward-auth?policy="

// TestForwardAuth compares the answers to a gateway, until a limit is reached, with those in testdata.
func TestForwardAuth(t *testing.T) {
	f := newFront(t, &Options{ForwardAuth: gateways}, smsSend, tail)
	from := func(query string, headers ...string) step {
		return step{method: "GET", path: forwardAuth + query, headers: append([]string{"X-Forwarded-For", "203.0.113.7"}, headers...)}
	}
	f.story("forward-auth", []step{
		from("sms-send"),
		from("sms-send&cost=2"),
		from("sms-send"),
		from("sms-send&deny-status=403"),
		from("sms-send&identify=header:X-Tenant", "X-Tenant", "acme"),
		from("sms-send&policy=api&identify=all&identify=ip&cost=1&cost=5"),
		from("sms-send&policy=api"),
	})
}

// statusOf returns the status of the answer to a gateway about an address.
func (f *front) statusOf(query, address string, headers ...string) int {
	f.t.Helper()
	return f.do(http.MethodGet, forwardAuth+query, "", append([]string{"X-Forwarded-For", address}, headers...)...).StatusCode
}

func (f *front) mustAnswer(want, got int, what string) {
	f.t.Helper()
	if got != want {
		f.t.Errorf("%s: %d, want %d", what, got, want)
	}
}

// TestForwardedAddresses holds that requests count for the callers in the table of addresses.
func TestForwardedAddresses(t *testing.T) {
	for _, c := range conformance.Addresses(t) {
		f := newFront(t, &Options{ForwardAuth: gateways}, bucket) // a burst of two
		spent := f.do(http.MethodPost, "/v1/take", `{"policy":"bucket","identifier":"`+c.Caller+`","cost":2}`)
		f.mustAnswer(200, spent.StatusCode, c.Caller)
		f.mustAnswer(429, f.statusOf("bucket", c.Address), c.Address+": "+c.Why)
	}
}

// TestForwardedClientsAreTheirOwn holds that the headers of a client do not change whose limit counts.
func TestForwardedClientsAreTheirOwn(t *testing.T) {
	f := newFront(t, &Options{ForwardAuth: gateways}, bucket) // a burst of two
	for _, c := range []struct {
		address string
		headers []string
		want    int
	}{
		{"203.0.113.7", nil, 200},
		{"198.51.100.1, 203.0.113.7", nil, 200}, // the first is the client's claim
		{"198.51.100.2, 203.0.113.7, 10.0.0.9", nil, 429},
		{"203.0.113.8", nil, 200},
		{"2001:db8:1:2::3", nil, 200},
		{"2001:db8:1:2:ffff::4", nil, 200},
		{"2001:db8:1:2:5::6", nil, 429},
		{"203.0.113.8", []string{"Authorization", "Bearer t"}, 200}, // by the first source of the list, the address
		{"203.0.113.8", []string{"Authorization", "Bearer u"}, 429},
	} {
		f.mustAnswer(c.want, f.statusOf("bucket", c.address, c.headers...), c.address)
	}
	byKey := "bucket&identify=api-key"
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.9", "X-Api-Key", "k"), "a key")
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.10", "X-Api-Key", "k"), "a key")
	f.mustAnswer(429, f.statusOf(byKey, "203.0.113.11", "X-Api-Key", "k"), "a key")
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.13", "X-Api-Key", "203.0.113.14"), "a key that reads as an address")
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.13", "X-Api-Key", "203.0.113.14"), "a key that reads as an address")
	f.mustAnswer(429, f.statusOf(byKey, "203.0.113.13", "X-Api-Key", "203.0.113.14"), "a key that reads as an address")
	f.mustAnswer(200, f.statusOf("bucket", "203.0.113.14"), "that address")
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.12"), "without a key")
	f.mustAnswer(200, f.statusOf(byKey, "203.0.113.12"), "without a key")
	f.mustAnswer(429, f.statusOf(byKey, "203.0.113.12", "X-Api-Key", ""), "without a key")
}

// TestWhoMayAskForOthers holds that callers that are not trusted gateways are refused.
func TestWhoMayAskForOthers(t *testing.T) {
	for remote, want := range map[string]int{"192.0.2.9:1234": 200, "10.1.2.3:1": 200, "203.0.113.1:1": 403, "[::1]:5": 403, "@": 403} {
		f := newFront(t, &Options{ForwardAuth: gateways}, tail)
		r := httptest.NewRequest("GET", forwardAuth+"api", nil)
		r.RemoteAddr = remote
		r.Header.Set("X-Forwarded-For", "203.0.113.7")
		w := httptest.NewRecorder()
		f.server.ServeHTTP(w, r)
		f.mustAnswer(want, w.Code, remote)
		checkContract(t, r, "", w)
	}
	f := newFront(t, nil, tail)
	f.mustAnswer(403, f.statusOf("api", "203.0.113.7"), "without any trusted gateway")
}

func TestForwardAuthMistakes(t *testing.T) {
	f := newFront(t, &Options{ForwardAuth: gateways}, smsSend, tail)
	for _, c := range []struct {
		query, address, field string
		status                int
	}{
		{"", "203.0.113.7", "policy", 404},
		{"api" + strings.Repeat("&policy=api", policy.MaxDemands), "203.0.113.7", "policy", 400},
		{"nothing", "203.0.113.7", "policy", 404},
		{"api", "", "X-Forwarded-For", 400},
		{"api", " , ", "X-Forwarded-For", 400},
		{"api", "unknown", "X-Forwarded-For", 400},
		{"api", "_hidden", "X-Forwarded-For", 400},
		{"api", "203.0.113.7, unknown", "X-Forwarded-For", 400},
		{"api&identify=header:X-Tenant", "unknown, 10.0.0.9", "X-Forwarded-For", 400},
		{"api&identify=user", "203.0.113.7", "identify", 400}, // not permitted here
		{"api&identify=cookie:a", "203.0.113.7", "identify", 400},
		{"api&identify=ip&identify=ip", "203.0.113.7", "identify", 400},
		{"api&cost=0", "203.0.113.7", "cost", 400},
		{"api&cost=x", "203.0.113.7", "cost", 400},
		{"api&cost=2001", "203.0.113.7", "cost", 422},
		{"api&policy=sms-send&cost=1&cost=5", "203.0.113.7", "cost", 422},
		{"api&cost=1&cost=2", "203.0.113.7", "cost", 400},
		{"api&deny-status=404", "203.0.113.7", "deny-status", 400},
		{"api&deny-status=403&deny-status=403", "203.0.113.7", "deny-status", 400},
		{"api&identifier=4915112345678", "203.0.113.7", "identifier", 400}, // never in a URL
		{"api&policy=api", "203.0.113.7", "demands[1]", 400},
		{"api&a=%zz", "203.0.113.7", "", 400},
	} {
		headers := []string{"X-Forwarded-For", c.address}
		res := f.do(http.MethodGet, forwardAuth+c.query, "", headers...)
		body := bodyOf(t, res)
		if res.StatusCode != c.status || !strings.Contains(body, `"field":"`+c.field+`"`) && c.field != "" {
			t.Errorf("%s: %d, %s; want %d and %s", c.query, res.StatusCode, body, c.status, c.field)
		}
	}
	f.mustAnswer(405, f.do(http.MethodPost, forwardAuth+"api", "{}").StatusCode, "POST")
	f.mustAnswer(400, f.do(http.MethodGet, "/v1/forward-auth", "", "X-Forwarded-For", "203.0.113.7").StatusCode, "no policy")
	if strings.Contains(f.log.String(), "203.0.113.7") || strings.Contains(f.log.String(), "4915112345678") {
		t.Errorf("an identifier is in the log:\n%s", f.log)
	}
}

// TestForwardAuthWithoutStore holds that on_store_error decides without the store.
func TestForwardAuthWithoutStore(t *testing.T) {
	f := newFront(t, &Options{ForwardAuth: gateways}, tail, lenient)
	f.store.err = errStoreDown
	res := f.do(http.MethodGet, forwardAuth+"api&deny-status=403", "", "X-Forwarded-For", "203.0.113.7")
	if body := bodyOf(t, res); res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(body, `"recorded":"no"`) {
		t.Errorf("%d, %v, %s", res.StatusCode, res.Header, body)
	}
	f.mustAnswer(200, f.statusOf("lenient", "203.0.113.7"), "a policy that allows then")
}

// TestForwardAuthOfHead holds that HEAD is answered like GET.
func TestForwardAuthOfHead(t *testing.T) {
	f := newFront(t, &Options{ForwardAuth: gateways}, tail)
	for i := range 2 {
		res := f.do(http.MethodHead, forwardAuth+"api", "", "X-Forwarded-For", "203.0.113.7")
		body, err := io.ReadAll(res.Body)
		if got := res.Header.Get("X-Ratelimit-Remaining"); got != strconv.Itoa(999-i) || len(body) > 0 || err != nil {
			t.Errorf("%s remain, %q, %v", got, body, err)
		}
	}
}
