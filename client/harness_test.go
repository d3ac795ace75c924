package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// patience is how long a busy machine may take for what takes milliseconds: the time of a call,
// where a test does not say otherwise.
const patience = time.Minute

// seen is a request as the service saw it.
type seen struct {
	path  string
	calls int
	keys  []string // of idempotency, where there are any
}

// service answers as a ratelimitd does: the policies api and sms-send have room for all, closed has none, and there is no
// other. What needs a real one is tested in the service's module, in internal/goclient.
type service struct {
	t *testing.T

	// instead answers a request in the service's place; false: the service does. nil: it
	// always does.
	instead func(w http.ResponseWriter, r *http.Request) bool

	mu    sync.Mutex
	seen  []seen
	units map[client.Demand]int64 // that count
	kept  map[string]answer       // by idempotency keys
}

func newService(t *testing.T) *service {
	t.Helper()
	return &service{t: t, units: make(map[client.Demand]int64), kept: make(map[string]answer)}
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the caller is gone
	}
	s.note(r, body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	if s.instead == nil || !s.instead(w, r) {
		s.answer(w, r)
	}
}

// operation is a call, as a request of its own or a batch has it.
type operation struct {
	client.Demand // of a call that has one

	Op      client.Op
	Demands []client.Demand
	Reserve int64  `json:"reserve_ms"`
	Key     string `json:"idempotency_key"`
}

// answer is the members of an answer to a call, and its status.
type answer struct {
	status  int
	members map[string]any
}

// answer answers a request as the service does.
func (s *service) answer(w http.ResponseWriter, r *http.Request) {
	var asked struct {
		operation
		Operations []operation
	}
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		s.t.Error(err)
	}
	switch route := strings.TrimPrefix(r.URL.Path, "/v1/"); route {
	case "reset":
		w.WriteHeader(http.StatusNoContent)
	case "batch":
		s.answerAll(w, strings.Contains(r.Header.Get("Accept"), "ndjson"), asked.Operations)
	default:
		asked.Op, asked.Key = client.Op(route), r.Header.Get("Idempotency-Key")
		a, replayed := s.decide(&asked.operation)
		w.Header().Set("Content-Type", "application/json")
		if a.status != http.StatusOK {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		if replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		w.WriteHeader(a.status)
		s.write(w, a.members)
	}
}

// answerAll answers a batch, by a line for each operation or as one object.
func (s *service) answerAll(w http.ResponseWriter, lines bool, operations []operation) {
	results := make([]map[string]any, len(operations))
	for i := range operations {
		a, replayed := s.decide(&operations[i])
		results[i] = maps.Clone(a.members)
		results[i]["status"], results[i]["replayed"] = a.status, replayed
	}
	if !lines {
		w.Header().Set("Content-Type", "application/json")
		s.write(w, map[string]any{"results": results})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	for i, r := range results {
		r["index"] = i
		s.write(w, r)
	}
}

func (s *service) write(w io.Writer, members map[string]any) {
	text, err := json.Marshal(members)
	if err != nil {
		s.t.Error(err)
	}
	_, _ = w.Write(append(text, '\n')) // a client that is gone does not miss it
}

// decide decides o, or repeats the answer to its key.
func (s *service) decide(o *operation) (a answer, replayed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a, replayed = s.kept[o.Key]; replayed {
		return a, true
	}
	a = s.decideAnew(o)
	if o.Key != "" && o.Op != client.OpCheck {
		s.kept[o.Key] = a
	}
	return a, false
}

func (s *service) decideAnew(o *operation) answer {
	if len(o.Demands) == 0 {
		o.Demands = []client.Demand{o.Demand}
	}
	for _, d := range o.Demands {
		switch d.Policy {
		case "api", "sms-send":
		case "closed":
			return answer{http.StatusTooManyRequests, map[string]any{
				"status": 429, "detail": "No room.", "allowed": false, "policy": d.Policy, "retry_after_ms": nil}}
		default:
			return answer{http.StatusNotFound, map[string]any{"status": 404, "detail": "No policy of that name is in force.", "field": "policy"}}
		}
	}
	for _, d := range o.Demands {
		if o.Op != client.OpCheck {
			s.units[one(d.Policy, d.Identifier)] += max(1, d.Cost)
		}
	}
	first := o.Demands[0]
	members := map[string]any{"allowed": true, "policy": first.Policy, "used": s.units[one(first.Policy, first.Identifier)]}
	if o.Reserve > 0 {
		members["reservation"] = "r"
	}
	return answer{http.StatusOK, members}
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
		if n := client.UnderWay(c); n != 0 {
			t.Errorf("%d calls are under way at the end", n)
		}
	})
	return c
}

// used returns how many units count for identifier under the policy api.
func (s *service) used(identifier string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.units[one("api", identifier)]
}

func one(policy, identifier string) client.Demand {
	return client.Demand{Policy: policy, Identifier: identifier}
}

// gate holds requests up until it is opened.
type gate struct {
	arrived chan struct{} // receives for each request that waits
	opened  chan struct{}
}

func newGate() *gate { return &gate{make(chan struct{}, 1<<10), make(chan struct{})} }

// hold waits until the gate is open, or the caller is gone.
func (g *gate) hold(r *http.Request) {
	g.arrived <- struct{}{}
	select {
	case <-g.opened:
	case <-r.Context().Done():
	}
}

// open lets all requests pass, those that come later too.
func (g *gate) open() { close(g.opened) }

// result is the result of a call.
type result struct {
	client.Decision
	err error
}

// asking makes a call in a goroutine of its own.
func asking(call func() (client.Decision, error)) <-chan result {
	got := make(chan result, 1)
	go func() {
		d, err := call()
		got <- result{d, err}
	}()
	return got
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
