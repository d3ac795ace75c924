package proxy_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/identifier"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// patience is the deadline of events that take milliseconds on an idle machine.
const patience = 20 * time.Second

// policies are the policies of the tests, each with a window that does not end during a test.
var policies = []policy.Policy{
	aPolicy("two", 2), aPolicy("other", 2), aPolicy("bytes", 100), aPolicy("objects", 10), aPolicy("sent", 15),
	{Name: "open", OnStoreError: policy.OnStoreErrorAllow, Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 2, Window: time.Hour}}},
	{Name: "slots", Limits: []policy.Limit{{Algorithm: "concurrent", Limit: 1, Window: time.Hour}}},
	{Name: "asked", Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 1, Max: 5, Window: policy.MaxWindow}}},
}

func aPolicy(name string, units int64) policy.Policy {
	return policy.Policy{Name: name, Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: units, Window: policy.MaxWindow}}}
}

// frail is the embedded store, which fails with err if that is set.
type frail struct {
	*embedded.Store
	mu  sync.Mutex
	err error
}

func (f *frail) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *frail) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.Update(ctx, q, decide)
}

func (f *frail) UpdateAll(ctx context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	f.mu.Lock()
	err := f.err
	f.mu.Unlock()
	if err != nil {
		return err
	}
	return f.Store.UpdateAll(ctx, q, decide)
}

// front is a proxy in front of an application.
type front struct {
	t      *testing.T
	url    string
	proxy  *proxy.Proxy
	server *httptest.Server
	app    *httptest.Server
	store  *frail
	engine *limiter.Engine
	log    *strings.Builder
	seen   chan string // route and status of each request, once it is counted
}

// newFront returns a proxy to app with these routes, in YAML.
func newFront(t *testing.T, routes string, app http.HandlerFunc, change ...func(*proxy.Options)) *front {
	t.Helper()
	f := &front{t: t, app: httptest.NewServer(app), store: &frail{Store: embedded.New(nil)}, log: new(strings.Builder)}
	t.Cleanup(f.app.Close)
	f.seen = make(chan string, 1000)
	f.engine = limiter.New(f.store, &limiter.Options{Identifiers: identifier.Reader})
	if err := f.engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	parsed, err := proxy.Parse("proxy.yaml", []byte("routes:\n"+routes), f.engine.Policies())
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(f.app.URL)
	if err != nil {
		t.Fatal(err)
	}
	opts := &proxy.Options{Upstream: upstream, Routes: parsed, Logger: slog.New(slog.NewTextHandler(f.log, nil)),
		Observe: func(route string, status int, _ time.Duration, _ string) {
			f.seen <- route + " " + http.StatusText(status)
		}}
	for _, change := range change {
		change(opts)
	}
	if f.proxy, err = proxy.New(f.engine, opts); err != nil {
		t.Fatal(err)
	}
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = proxy.NewHTTPServer(f.proxy)
	f.server.EnableHTTP2 = true
	f.server.Start()
	t.Cleanup(func() {
		f.server.Close()
		f.proxy.Close()
	})
	f.url = f.server.URL
	return f
}

// request returns a request with headers in pairs; "Host" is the host.
func (f *front) request(method, path, body string, headers ...string) *http.Request {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), patience)
	f.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, method, f.url+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
	}
	return r
}

// send sends a request, and returns the answer with its body.
func (f *front) send(r *http.Request) (*http.Response, string) {
	f.t.Helper()
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	f.wait()
	return res, string(body)
}

// wait returns the observation of the next request that is counted.
func (f *front) wait() string {
	f.t.Helper()
	select {
	case seen := <-f.seen:
		return seen
	case <-time.After(patience):
		f.t.Fatal("a request is not counted")
		return ""
	}
}

// mustBe sends a request, which must be answered with this status.
func (f *front) mustBe(status int, method, path, body string, headers ...string) *http.Response {
	f.t.Helper()
	res, text := f.send(f.request(method, path, body, headers...))
	if res.StatusCode != status {
		f.t.Errorf("%s %s %v: %d, want %d: %s", method, path, headers, res.StatusCode, status, text)
	}
	return res
}

// used returns the used units of an identifier.
func (f *front) used(policy, identifier string) int64 {
	f.t.Helper()
	d, err := f.engine.Check(f.t.Context(), limiter.Demand{Policy: policy, Identifier: keys.Identifier(identifier), Cost: 1})
	if err != nil {
		f.t.Fatal(err)
	}
	return d.Used
}

func (f *front) mustHaveUsed(units int64, policy, identifier string) {
	f.t.Helper()
	if got := f.used(policy, identifier); got != units {
		f.t.Errorf("%d units of %s are used, want %d", got, policy, units)
	}
}

// hello answers with the status at the end of the path.
func hello(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	for status, name := range map[int]string{401: "/401", 404: "/404", 500: "/500"} {
		if strings.HasSuffix(r.URL.Path, name) {
			w.WriteHeader(status)
		}
	}
	_, _ = io.WriteString(w, "hello "+r.Method+" "+r.RequestURI+" "+string(body))
}

// dial opens a connection and sends text.
func (f *front) dial(text string) (net.Conn, *bufio.Reader) {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(conn, text); err != nil {
		f.t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

func trust(prefixes string) func(*proxy.Options) {
	return func(o *proxy.Options) {
		trusted, err := origin.ParseProxies(prefixes)
		if err != nil {
			panic(err)
		}
		o.TrustedProxies = trusted
	}
}
