package api

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// keyring returns a Keyring of callers that are named like their tokens. The rest of a line has their scopes and
// policies; without policies, they may use any.
func keyring(t *testing.T, callers ...string) *auth.Keyring {
	t.Helper()
	file := "callers:\n"
	for _, c := range callers {
		name, rest, _ := strings.Cut(c, " ")
		if !strings.Contains(rest, "policies:") {
			rest += ", policies: any"
		}
		file += "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", " + rest + "}\n"
	}
	parsed, err := auth.Parse("callers.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	k := new(auth.Keyring)
	k.Set(parsed)
	return k
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// TestScopes holds which routes each caller may use.
func TestScopes(t *testing.T) {
	names := []string{"", "stranger", "decider", "recorder", "admin", "scraper"}
	f := newFront(t, &Options{
		Metrics:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "up 1\n") }),
		Overshoot: new(overshot).of,
		Shadow:    noShadow,
		Policies:  &keeper{texts: []string{"one"}, by: []string{"a"}},
		Keyring: keyring(t, "decider scopes: [decide]", "recorder scopes: [record]", "admin scopes: [admin]",
			"scraper scopes: [metrics]"),
	}, smsSend)
	for _, c := range []struct {
		method, path, body string
		status             [6]int // of each name
	}{
		{"POST", "/v1/check", one, [...]int{401, 401, 200, 403, 403, 403}},
		{"POST", "/v1/take", one, [...]int{401, 401, 200, 403, 403, 403}},
		{"POST", "/v1/record", one, [...]int{401, 401, 403, 200, 403, 403}},
		{"POST", "/v1/batch", operationsOf(oneOp), [...]int{401, 401, 200, 200, 403, 403}},
		{"POST", "/v1/refund", `{"receipt":"a"}`, [...]int{401, 401, 404, 404, 403, 403}},
		{"POST", "/v1/confirm", `{"receipt":"a"}`, [...]int{401, 401, 404, 404, 403, 403}},
		{"POST", "/v1/reset", one, [...]int{401, 401, 403, 403, 204, 403}},
		{"POST", "/v1/explain", one, [...]int{401, 401, 403, 403, 200, 403}},
		{"POST", "/v1/overrides", blockOne, [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/v1/overrides", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"POST", "/v1/overrides/get", one, [...]int{401, 401, 403, 403, 200, 403}},
		{"POST", "/v1/overrides/delete", one, [...]int{401, 401, 403, 403, 204, 403}},
		{"GET", "/v1/policies", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"PUT", "/v1/policies", `{}`, [...]int{401, 401, 403, 403, 415, 403}}, // it says no type
		{"GET", "/v1/policy-versions", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/v1/policy-versions/1", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/v1/policies/sms-send", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/v1/policies/sms-send/overshoot", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/v1/policies/sms-send/shadow", "", [...]int{401, 401, 403, 403, 200, 403}},
		{"GET", "/metrics", "", [...]int{401, 401, 403, 403, 200, 200}},
		{"HEAD", "/metrics", "", [...]int{401, 401, 403, 403, 200, 200}},
		{"GET", "/healthz", "", [...]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/readyz", "", [...]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/openapi.yaml", "", [...]int{200, 200, 200, 200, 200, 200}},
		{"GET", "/nowhere", "", [...]int{404, 404, 404, 404, 404, 404}},
		{"POST", "/v1/check", `{`, [...]int{401, 401, 400, 403, 403, 403}},
	} {
		for i, name := range names {
			var headers []string
			if name != "" {
				headers = bearer(name)
			}
			res := f.do(c.method, c.path, c.body, headers...)
			if res.StatusCode != c.status[i] {
				t.Errorf("%s %s by %q: %d, want %d", c.method, c.path, name, res.StatusCode, c.status[i])
			}
			refused := res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden
			if challenge := res.Header.Get("WWW-Authenticate"); refused != strings.HasPrefix(challenge, "Bearer ") {
				t.Errorf("%s %s by %q: %d with the challenge %q", c.method, c.path, name, res.StatusCode, challenge)
			}
		}
	}
}

// TestCredentials holds that headers that are not tokens are refused.
func TestCredentials(t *testing.T) {
	f := newFront(t, &Options{Keyring: keyring(t, "decider scopes: [decide]")}, smsSend)
	for value, status := range map[string]int{
		"Bearer decider": 200, "bearer decider": 200, "BEARER decider": 200,
		"Bearer": 401, "Bearer ": 401, "decider": 401, "Basic decider": 401, "Bearer decider ": 401, "Bearer  decider": 401,
		"Bearer " + strings.Repeat("d", 10_000): 401,
	} {
		if res := f.do("POST", "/v1/check", one, "Authorization", value); res.StatusCode != status {
			t.Errorf("%.40q: %d, want %d", value, res.StatusCode, status)
		}
	}
	r := httptest.NewRequest("POST", "/v1/check", strings.NewReader(one))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer decider", "Bearer decider"}}
	w := httptest.NewRecorder()
	if f.server.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
		t.Errorf("two headers: %d", w.Code)
	}
}

// TestScopesOfOperations holds that each operation of a batch needs its own scope.
func TestScopesOfOperations(t *testing.T) {
	f := newFront(t, &Options{Keyring: keyring(t, "decider scopes: [decide], policies: [api]")}, smsSend, tail)
	res := f.do("POST", "/v1/batch", operationsOf(
		`{"op":"take","policy":"api","identifier":"a"}`,
		`{"op":"record","policy":"api","identifier":"a"}`,
		`{"op":"take","policy":"sms-send","identifier":"a"}`,
		`{"op":"check","demands":[{"policy":"api","identifier":"a"},{"policy":"sms-send","identifier":"a"}]}`,
		`{"op":"take","policy":"nowhere","identifier":"a"}`,
	), bearer("decider")...)
	body := bodyOf(t, res)
	for _, want := range []string{
		`"allowed":true,"policy":"api"`,
		`"status":403,"detail":"The caller is not permitted to ask for this: it needs the scope record.","field":"operations[1]"`,
		`"status":403,"detail":"The caller is not permitted to use this policy.","field":"operations[2].policy"`,
		`"field":"operations[3].demands[1].policy"`, `"field":"operations[4].policy"`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if strings.Count(body, `"status":403`) != 4 {
		t.Errorf("four of five are not permitted: %s", body)
	}
}

// TestPoliciesOfCallers holds that a caller is refused policies that it may not use, whether they exist or not.
func TestPoliciesOfCallers(t *testing.T) {
	f := newFront(t, &Options{
		Overshoot: new(overshot).of,
		Shadow:    noShadow,
		Policies:  &keeper{texts: []string{"one"}, by: []string{"a"}},
		Keyring:   keyring(t, "some scopes: [decide, record, admin], policies: [api]"),
	}, smsSend, tail)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/take", `{"policy":"api","identifier":"a"}`, 200},
		{"POST", "/v1/take", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"POST", "/v1/take", `{"policy":"nowhere","identifier":"a"}`, 403},
		{"POST", "/v1/record", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"POST", "/v1/reset", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"PUT", "/v1/policies", `{}`, 403},
		{"GET", "/v1/policy-versions", "", 403},
		{"GET", "/v1/policy-versions/1", "", 403},
		{"POST", "/v1/reset", `{"policy":"api","identifier":"a"}`, 204},
		{"POST", "/v1/explain", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"POST", "/v1/overrides", `{"policy":"sms-send","identifier":"a","kind":"allow","expires_in_ms":1000}`, 403},
		{"POST", "/v1/overrides/get", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"POST", "/v1/overrides/delete", `{"policy":"sms-send","identifier":"a"}`, 403},
		{"GET", "/v1/policies/sms-send", "", 403},
		{"GET", "/v1/policies/nowhere", "", 403},
		{"GET", "/v1/policies/sms-send/overshoot", "", 403},
		{"GET", "/v1/policies/api/overshoot", "", 200},
		{"GET", "/v1/policies/sms-send/shadow", "", 403},
		{"GET", "/v1/policies/api/shadow", "", 200},
	} {
		if res := f.do(c.method, c.path, c.body, bearer("some")...); res.StatusCode != c.status {
			t.Errorf("%s %s %s: %d, want %d", c.method, c.path, c.body, res.StatusCode, c.status)
		}
	}
	until := store.InstantOf(f.now().Add(time.Hour))
	for _, p := range []string{"api", "sms-send"} {
		o := demand.Override{Kind: policy.OverrideBlock, Until: until}
		if _, err := f.server.engine.Overrides.Set(t.Context(), p, "a", o); err != nil {
			t.Fatal(err)
		}
	}
	overridden := bodyOf(t, f.do("GET", "/v1/overrides", "", bearer("some")...))
	if !strings.Contains(overridden, `"policy":"api"`) || strings.Contains(overridden, "sms") || !strings.Contains(overridden, `"total":1`) {
		t.Errorf("the override that may be seen is one under api: %s", overridden)
	}
	list := bodyOf(t, f.do("GET", "/v1/policies", "", bearer("some")...))
	if !strings.Contains(list, `"name":"api"`) || strings.Contains(list, "sms-send") {
		t.Errorf("the policies that may be used are api: %s", list)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body of a stranger was read")
	return 0, io.EOF
}

// TestStrangersAreNotRead holds that only bodies of authenticated callers are read.
func TestStrangersAreNotRead(t *testing.T) {
	f := newFront(t, &Options{Keyring: keyring(t, "decider scopes: [decide]")}, smsSend)
	r := httptest.NewRequest("POST", "/v1/batch", unread{t})
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if f.server.ServeHTTP(w, r); w.Code != http.StatusUnauthorized {
		t.Errorf("%d, want 401", w.Code)
	}
}
