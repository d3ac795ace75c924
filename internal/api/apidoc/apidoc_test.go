package apidoc_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

var update = flag.Bool("update", false, "write docs/api.md anew")

var (
	written  = filepath.Join("..", "..", "..", "docs", "api.md")
	document = filepath.Join("..", "openapi.yaml")
	policies = filepath.Join("testdata", "policies.yaml")
)

// TestPageIsUpToDate sends every example of the OpenAPI document to a server and
// compares requests and answers with docs/api.md.
func TestPageIsUpToDate(t *testing.T) {
	got, err := markdown(read(t, document), read(t, policies), newFront(t).ask)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(written, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := read(t, written); !bytes.Equal(got, want) {
		t.Errorf("%s is out of date (run make docs):\n%s", written, firstDifference(string(got), string(want)))
	}
}

// front is a server over the embedded store, whose clock stands still.
type front struct {
	server *api.Server
	router routers.Router
	last   map[string]string // what the members were that a request has to bring back
}

func newFront(t *testing.T) *front {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(read(t, document))
	if err != nil {
		t.Fatal(err)
	}
	router, err := legacy.NewRouter(doc, openapi3.EnableExamplesValidation())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := policyfile.Parse(policies, read(t, policies))
	if err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }
	engine := limiter.New(embedded.New(&embedded.Options{Now: now}), &limiter.Options{Now: now, Identifiers: identifier.Reader})
	if err := engine.SetPolicies(parsed); err != nil {
		t.Fatal(err)
	}
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/plain") })
	opts := &api.Options{Now: now, Metrics: metrics, Overshoot: overshoot, Shadow: shadow, Policies: versions{}}
	opts.ForwardAuth.TrustedProxies = origin.Proxies{netip.MustParsePrefix("192.0.2.0/24")} // where httptest's requests come from
	return &front{server: api.New(engine, opts), router: router, last: map[string]string{}}
}

// versions are two of the policies, to which a third is added again and again.
type versions struct{}

const text = "policies:\n  - {name: api, limits: [{algorithm: sliding-tail, limit: 1000, window: 1m}]}\n"

func (versions) of(number int64) api.PolicyVersion {
	digest := sha256.Sum256([]byte(text))
	at := time.Date(2026, 3, 1, 12, int(number), 0, 0, time.UTC)
	return api.PolicyVersion{Version: number, Digest: hex.EncodeToString(digest[:]), Policies: 1, At: at, By: "operator"}
}

func (v versions) Apply(_ context.Context, _ []byte, have int64, _ string) (api.PolicyVersion, []slog.Attr, error) {
	return v.of(have + 1), nil, nil
}

func (v versions) Versions(context.Context) ([]api.PolicyVersion, error) {
	return []api.PolicyVersion{v.of(7), v.of(6)}, nil
}

func (v versions) Version(_ context.Context, number int64) (api.PolicyVersion, []byte, error) {
	return v.of(number), []byte(text), nil
}

// overshoot tells of two callers, one of whom asked for half as much again as a limit
// of 10.
func overshoot(context.Context, string, int, string) (api.Overshoot, error) {
	since := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	key := func(of string) string { return hex.EncodeToString(store.KeyFrom(sha256.Sum256([]byte(of))).Bytes()) }
	return api.Overshoot{
		Scope: encode.ScopeInstances, Instances: []api.OvershootInstance{{Instance: "3F0C5A8E7D514B1C9F572F5D0F", Since: since, Attempts: 6}},
		Unanswered: []encode.Unanswered{{Instance: "9A1B2C3D0E4F4A5B8C6D7E8F9A", Address: "10.0.0.3:8100", Reason: "it did not answer"}},
		Since:      &since, Attempts: 6, Units: 6, Episodes: 2, KeysOver: 1,
		Distribution: api.Distribution{Attempts: api.Spread{Count: 2, P50: 1, P90: 5, P99: 5, Max: 5, Buckets: []api.SpreadBucket{
			{AtMost: 1, Count: 1}, {AtMost: 2, Count: 1}, {AtMost: 3, Count: 1}, {AtMost: 4, Count: 1}, {AtMost: 5, Count: 2},
		}}, TimesLimit: api.Spread{Count: 2, P50: 1.1, P90: 1.5, P99: 1.5, Max: 1.5, Buckets: []api.SpreadBucket{
			{AtMost: 1.1, Count: 1}, {AtMost: 1.25, Count: 1}, {AtMost: 1.5, Count: 2},
		}}},
		WorstSince: &since,
		Worst: []api.WorstKey{
			{Key: key("0"), Attempts: 5}, {Key: key("1"), Attempts: 1},
		},
	}, nil
}

// shadow tells of a stricter limit, by one instance of two.
func shadow(context.Context, string) encode.Shadow {
	since, two, none := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), int64(2), int64(0)
	later := since.Add(time.Hour)
	return encode.Shadow{
		Scope: encode.ScopeInstances, Version: 7, Since: &since, Calls: 42, Denied: 1, WouldDeny: 5, Callers: &two,
		Limits: []encode.ShadowLimit{{
			Name: "per-hour-next", WouldDeny: 5, Callers: &two,
			Hours: []encode.ShadowSpan{
				{Start: since, Calls: 30, WouldDeny: 5, Callers: &two}, {Start: later, Calls: 12, Callers: &none},
			},
			Minutes: []encode.ShadowSpan{{Start: later.Add(5 * time.Minute), Calls: 12}},
		}},
		Instances:  []encode.ShadowInstance{{Instance: "one", Since: since, Calls: 42}},
		Unanswered: []encode.Unanswered{{Instance: "two", Address: "10.0.0.3:8100", Reason: "it did not answer"}},
	}
}

// tokenMember is a receipt or a reservation: an example has one that no server gave, and
// is sent with the last one that this server did.
var tokenMember = regexp.MustCompile(`"(receipt|reservation)":"([A-Za-z0-9_-]+)"`)

// ask answers one example, which must be served as the document says.
func (f *front) ask(r *request) (answer, error) {
	body := tokenMember.ReplaceAllStringFunc(r.Body, func(member string) string {
		found := tokenMember.FindStringSubmatch(member)
		return strings.ReplaceAll(member, found[2], f.last[found[1]])
	})
	request := httptest.NewRequest(r.Method, r.Path, strings.NewReader(body))
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	for _, header := range r.Headers {
		request.Header.Set(header[0], header[1])
	}
	w := httptest.NewRecorder()
	f.server.ServeHTTP(w, request)
	if err := f.check(request, body, w); err != nil {
		return answer{}, fmt.Errorf("%d %s: %w", w.Code, w.Body, err)
	}
	for _, member := range tokenMember.FindAllStringSubmatch(w.Body.String(), -1) {
		f.last[member[1]] = member[2]
	}
	return answer{Status: w.Code, ContentType: w.Header().Get("Content-Type"), Body: w.Body.String()}, nil
}

// refusedInside is a result of a batch that is a problem.
var refusedInside = regexp.MustCompile(`"status":[45]`)

// check holds a request and its answer against the document.
func (f *front) check(r *http.Request, body string, w *httptest.ResponseRecorder) error {
	if w.Code >= http.StatusBadRequest {
		return errors.New("an example is not served")
	}
	if w.Header().Get("Content-Type") == "application/json" && refusedInside.MatchString(w.Body.String()) {
		return errors.New("an operation of an example is not served")
	}
	route, params, err := f.router.FindRoute(r)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(strings.NewReader(body))
	in := &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(context.Background(), in); err != nil {
		return err
	}
	isText := !strings.Contains(w.Header().Get("Content-Type"), "json")
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: in, Status: w.Code, Header: w.Header(), Body: io.NopCloser(strings.NewReader(w.Body.String())),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: isText},
	})
}

// TestWrongExamples makes sure that no example which is not served, or not as the
// document says, gets into the page.
func TestWrongExamples(t *testing.T) {
	for _, c := range []struct{ name, was, is string }{
		{"another policy", "policy: api, identifier: alice", "policy: none, identifier: alice"},
		{"a member more", "identifier: \"+4915112345678\", cost: 1}}", "identifier: \"+4915112345678\", more: 1}}"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wrong := strings.ReplaceAll(string(read(t, document)), c.was, c.is)
			if wrong == string(read(t, document)) {
				t.Fatalf("the document has no %q", c.was)
			}
			if _, err := markdown([]byte(wrong), read(t, policies), newFront(t).ask); err == nil {
				t.Error("the page is written all the same")
			}
		})
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines, want %d", len(g), len(w))
}
