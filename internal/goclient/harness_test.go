package goclient_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// patience is how long a busy machine may take for what takes milliseconds: the time of a call,
// where a test does not say otherwise.
const patience = time.Minute

// The policies that the tests ask for.
var policies = []policy.Policy{
	{Name: "sms-send", Limits: []policy.Limit{{Name: "per-hour", Algorithm: "sliding-log", Limit: 3, Window: time.Hour}}},
	{Name: "api", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 1_000_000, Window: 24 * time.Hour}}},
	{Name: "closed", Limits: []policy.Limit{{Name: "none", Algorithm: "fixed-window", Window: time.Minute}}},
	{Name: "shadow", Mode: policy.ModeShadow, Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1, Window: time.Hour}}},
}

// seen is a request as the service saw it.
type seen struct {
	path  string
	calls int
	keys  []string // of idempotency, where there are any
}

// service is a ratelimitd in this process, over a store that may fail.
type service struct {
	t       *testing.T
	handler http.Handler
	down    error // of the store; nil: it is well

	// instead answers a request in the service's place; false: the service does. nil: it
	// always does.
	instead func(w http.ResponseWriter, r *http.Request) bool

	mu   sync.Mutex
	seen []seen
}

func newService(t *testing.T) *service {
	t.Helper()
	s := &service{t: t}
	engine := limiter.New(&frail{Store: embedded.New(nil), of: s}, &limiter.Options{StoreTimeout: patience})
	if err := engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	s.handler = api.New(engine, nil)
	return s
}

// frail is the embedded store, which fails while its service is down.
type frail struct {
	*embedded.Store
	of *service
}

func (f *frail) Update(ctx context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	if f.of.down != nil {
		return f.of.down
	}
	return f.Store.Update(ctx, q, decide)
}

func (f *frail) UpdateAll(ctx context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	if f.of.down != nil {
		return f.of.down
	}
	return f.Store.UpdateAll(ctx, q, decide)
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	s.note(r, body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if s.instead == nil || !s.instead(w, r) {
		s.handler.ServeHTTP(w, r)
	}
}

func (s *service) note(r *http.Request, body []byte) {
	var b struct {
		Operations []struct {
			Key string `json:"idempotency_key"`
		} `json:"operations"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		s.t.Errorf("the client sent %q: %v", body, err)
	}
	saw := seen{path: r.URL.Path, calls: max(1, len(b.Operations))}
	for _, o := range b.Operations {
		saw.keys = append(saw.keys, o.Key)
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		saw.keys = []string{key}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, saw)
}

// requests returns the requests that the service has seen.
func (s *service) requests() []seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.seen)
}

// overHTTP returns a client that asks s over real connections.
func (s *service) overHTTP(opts *client.Options) *client.Client {
	s.t.Helper()
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	if opts == nil {
		opts = new(client.Options)
	}
	if opts.Timeout == 0 {
		opts.Timeout = patience
	}
	return newClient(s.t, server.URL, opts)
}

// inMemory returns a client that asks s without a connection, as bubbles have none.
func (s *service) inMemory(opts *client.Options) *client.Client {
	s.t.Helper()
	if opts == nil {
		opts = new(client.Options)
	}
	opts.Transport = s.transport()
	return newClient(s.t, "http://ratelimitd", opts)
}

// transport asks s without a connection.
func (s *service) transport() transport {
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		ended := make(chan struct{})
		var aborted any
		go func() {
			defer close(ended)
			defer func() { aborted = recover() }()
			s.ServeHTTP(w, r)
		}()
		select {
		case <-ended:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if aborted != nil {
			return nil, errReset
		}
		return w.Result(), nil
	}
}

var errReset = errors.New("connection reset by peer")

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func newClient(t *testing.T, url string, opts *client.Options) *client.Client {
	t.Helper()
	c, err := client.New(url, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// used returns how many units count for identifier under the policy api.
func (s *service) used(identifier string) int64 {
	s.t.Helper()
	body := strings.NewReader(`{"policy":"api","identifier":"` + identifier + `"}`)
	r := httptest.NewRequest(http.MethodPost, "/v1/check", body)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	var d struct{ Used int64 }
	if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil || w.Code != http.StatusOK {
		s.t.Fatalf("status %d, %v: %s", w.Code, err, w.Body)
	}
	return d.Used
}

func one(policy, identifier string) client.Demand {
	return client.Demand{Policy: policy, Identifier: identifier}
}

// mustBe fails the test unless err is target, and says so of the units.
func mustBe(t *testing.T, err, target error, recorded client.Recorded) {
	t.Helper()
	if !errors.Is(err, target) || client.RecordedOf(err) != recorded {
		t.Errorf("the error is %v, recorded %q; want %v, recorded %q", err, client.RecordedOf(err), target, recorded)
	}
	if errors.Is(err, context.Canceled) && errors.Is(err, client.ErrUnavailable) {
		t.Errorf("%v blames the service", err)
	}
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprint("user-", i)
	}
	return list
}
