package conformance_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/clients/conformance"
)

// webCase is a case of middleware.
type webCase struct {
	Name       string `json:"name"`
	Service    string `json:"service"` // "none", or empty: ratelimitd
	FailClosed bool   `json:"fail_closed"`
	Requests   []struct {
		Path    string            `json:"path"`
		Method  string            `json:"method"`
		Headers map[string]string `json:"headers"`
		Expect  struct {
			Status  int                `json:"status"`
			Headers map[string]*string `json:"headers"`
			Body    map[string]any     `json:"body"`
		} `json:"expect"`
	} `json:"requests"`
	Undecided uint64 `json:"undecided"`
}

// rules are the rules of each path.
var rules = map[string][]httplimit.Rule{
	"/{$}":        {httplimit.Use("web")},
	"/closed":     {httplimit.Use("closed")},
	"/user":       {byUser()},
	"/by-address": {httplimit.Use("web-user")},
	"/both":       {httplimit.Use("web"), byUser()},
	"/customer":   {httplimit.Use("customers", httplimit.By(httplimit.Header("X-User")))},
	"/gold": {httplimit.Use("customers", httplimit.By(httplimit.Header("X-User")),
		httplimit.LimitOf(func(*http.Request) int64 { return 3 }))},
	"/phone":   {httplimit.Use("phone", httplimit.By(httplimit.Header("X-Phone")))},
	"/big":     {httplimit.Use("bytes", httplimit.Cost(101))},
	"/unknown": {httplimit.Use("no-such")},
}

func byUser() httplimit.Rule {
	return httplimit.Use("web-user", httplimit.By(httplimit.Header("X-User")))
}

func TestWeb(t *testing.T) {
	service := serve(t)
	for _, c := range readCases[webCase](t, "web") {
		t.Run(c.Name, func(t *testing.T) {
			if c.Service == "none" {
				c.run(t, nobody(t))
			} else {
				c.run(t, service)
			}
		})
	}
}

func (c *webCase) run(t *testing.T, service string) {
	quiet := slog.New(slog.DiscardHandler)
	limits, err := client.New(service, &client.Options{Timeout: patience, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	limit := httplimit.New(limits, &httplimit.Options{
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, FailClosed: c.FailClosed, Logger: quiet,
	})
	mux := http.NewServeMux()
	served := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "served") })
	for path, all := range rules {
		mux.Handle(path, limit.All(all...)(served))
	}
	resolve := webNames()
	for i, r := range c.Requests {
		request := httptest.NewRequest(cmp.Or(r.Method, http.MethodGet), r.Path, nil)
		request.RemoteAddr = "127.0.0.1:1"
		for name, value := range r.Headers {
			request.Header.Set(name, resolve(value))
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, request)
		if r.Expect.Status != 0 && w.Code != r.Expect.Status {
			t.Errorf("request %d: status %d, want %d: %s", i+1, w.Code, r.Expect.Status, w.Body)
		}
		checkHeaders(t, w.Header(), r.Expect.Headers)
		checkBody(t, w.Body.Bytes(), r.Expect.Body)
	}
	if limit.Undecided() != c.Undecided {
		t.Errorf("%d undecided, want %d", limit.Undecided(), c.Undecided)
	}
}

// TestAddresses identifies the callers of the table of addresses with the middleware.
func TestAddresses(t *testing.T) {
	identify := httplimit.IP(netip.MustParsePrefix("127.0.0.0/8"))
	for _, c := range conformance.Addresses(t) {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.RemoteAddr = "127.0.0.1:1"
		request.Header.Set("X-Forwarded-For", c.Address)
		if got := identify(request); got != c.Caller {
			t.Errorf("%s is %s, want %s: %s", c.Address, got, c.Caller, c.Why)
		}
	}
}

func checkHeaders(t *testing.T, got http.Header, want map[string]*string) {
	t.Helper()
	for name, value := range want {
		switch all := got.Values(name); {
		case value == nil && len(all) > 0:
			t.Errorf("%s: %q, want none", name, all)
		case value != nil && (len(all) != 1 || all[0] != *value):
			t.Errorf("%s: %q, want %q", name, all, *value)
		}
	}
}

func checkBody(t *testing.T, body []byte, want map[string]any) {
	t.Helper()
	if len(want) == 0 {
		return
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s: %v, want %v", name, got[name], value)
		}
	}
}

var dollar = regexp.MustCompile(`\$\w+`)

// webNames returns the value of $name: an address, a subnet or a name of this case alone.
func webNames() func(string) string {
	suffix := fmt.Sprintf("-%x", rand.Uint64())
	values := map[string]string{
		"$address": fmt.Sprintf("10.%d.%d.%d", rand.IntN(256), rand.IntN(256), rand.IntN(256)),
		"$subnet":  fmt.Sprintf("2001:db8:%x:%x", 1+rand.IntN(0xffff), 1+rand.IntN(0xffff)),
	}
	return func(text string) string {
		return dollar.ReplaceAllStringFunc(text, func(name string) string {
			if value, ok := values[name]; ok {
				return value
			}
			return name[1:] + suffix
		})
	}
}
