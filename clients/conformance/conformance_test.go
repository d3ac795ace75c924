// Package conformance_test plays the cases of all clients with the Go client and its middleware, against a real server.
// README.md describes them.
package conformance_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
)

// patience is a deadline for work of milliseconds on a busy machine.
const patience = time.Minute

// step is a step of a case. Texts that begin with a dollar are names.
type step struct {
	Do             string            `json:"do"`
	Demands        []demand          `json:"demands"`
	HoldMS         int64             `json:"hold_ms"`
	WithinMS       int64             `json:"within_ms"`
	Reservation    string            `json:"reservation"`
	Cost           *int64            `json:"cost"` // nil: the units held
	IdempotencyKey string            `json:"idempotency_key"`
	Receipt        string            `json:"receipt"`
	Policy         string            `json:"policy"`
	Identifier     string            `json:"identifier"`
	Calls          []batchCall       `json:"calls"`
	Concurrently   int               `json:"concurrently"`
	Expect         any               `json:"expect"`
	Save           map[string]string `json:"save"`
}

type demand struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier"`
	Cost       int64  `json:"cost"`
	Limit      int64  `json:"limit"`
}

type batchCall struct {
	Op             string   `json:"op"`
	Demands        []demand `json:"demands"`
	ReserveMS      int64    `json:"reserve_ms"`
	IdempotencyKey string   `json:"idempotency_key"`
	Receipt        string   `json:"receipt"`
}

// testCase is a case of calls.
type testCase struct {
	Name    string `json:"name"`
	Service any    `json:"service"` // nil: ratelimitd; "none", "silent", or a list of answers
	Client  struct {
		OnUnavailable   string `json:"on_unavailable"`
		TimeoutMS       int64  `json:"timeout_ms"`
		ProbeIntervalMS int64  `json:"probe_interval_ms"`
		Retries         int    `json:"retries"`
		MaxFailures     uint32 `json:"max_failures"`
		DisableBatching bool   `json:"disable_batching"`
	} `json:"client"`
	Steps      []step  `json:"steps"`
	Requests   *int64  `json:"requests"`
	FailedOpen *uint64 `json:"failed_open"`
}

func TestConformance(t *testing.T) {
	service := serve(t)
	for _, file := range []string{"calls", "errors", "together", "operators", "unavailable", "wait"} {
		t.Run(file, func(t *testing.T) {
			for _, c := range readCases[testCase](t, file) {
				t.Run(c.Name, func(t *testing.T) { c.run(t, service) })
			}
		})
	}
}

func (c *testCase) run(t *testing.T, service string) {
	var requests atomic.Int64
	if c.Service != nil {
		service = c.other(t, &requests)
	}
	told := 0
	limits, err := client.New(service, c.options(func(client.Call, error) { told++ }))
	if err != nil {
		t.Fatal(err)
	}
	defer limits.Close()
	n := newNames()
	for i := range c.Steps {
		s := &c.Steps[i]
		got := n.resolved(t, s).outcome(t, limits)
		match(t, got, s.Expect, s.Do)
		for member, name := range s.Save {
			n.values["$"+name], _ = got.(map[string]any)[member].(string)
		}
	}
	if c.Requests != nil && requests.Load() != *c.Requests {
		t.Errorf("%d requests, want %d", requests.Load(), *c.Requests)
	}
	if c.FailedOpen != nil && (limits.FailedOpen() != *c.FailedOpen || told != int(*c.FailedOpen)) { //nolint:gosec // few
		t.Errorf("%d failed open and %d were reported, want %d", limits.FailedOpen(), told, *c.FailedOpen)
	}
}

func (c *testCase) options(told func(client.Call, error)) *client.Options {
	o := &client.Options{
		Timeout: patience, Retries: c.Client.Retries, MaxFailures: c.Client.MaxFailures, FailedOpen: told,
		ProbeInterval:   time.Duration(c.Client.ProbeIntervalMS) * time.Millisecond,
		DisableBatching: c.Client.DisableBatching, Logger: slog.New(slog.DiscardHandler),
	}
	if c.Client.TimeoutMS > 0 {
		o.Timeout = time.Duration(c.Client.TimeoutMS) * time.Millisecond
	}
	if c.Client.OnUnavailable == "fail-open" {
		o.OnUnavailable = client.FailOpen
	}
	return o
}

// other starts a server in place of ratelimitd, and returns its URL.
func (c *testCase) other(t *testing.T, requests *atomic.Int64) string {
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(requests.Add(1)) - 1
		script, scripted := c.Service.([]any)
		if !scripted { // the server is silent
			<-over
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		answer, ok := script[min(n, len(script)-1)].(map[string]any)
		if !ok { // the answer is cut
			panic(http.ErrAbortHandler)
		}
		writeAnswer(w, answer)
	}))
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	if c.Service == "none" {
		s.Close()
	}
	t.Cleanup(func() { close(over); s.Close() })
	return s.URL
}

func writeAnswer(w http.ResponseWriter, answer map[string]any) {
	headers, _ := answer["headers"].(map[string]any)
	for name, value := range headers {
		text, _ := value.(string)
		w.Header().Set(name, text)
	}
	status, _ := answer["status"].(float64)
	w.WriteHeader(int(status))
	if text, ok := answer["body"].(string); ok {
		_, _ = io.WriteString(w, text)
		return
	}
	_ = json.NewEncoder(w).Encode(answer["body"])
}

// outcome makes the step's calls, and returns their outcome in the form of the suite.
func (s *step) outcome(t *testing.T, limits *client.Client) any {
	if s.Concurrently == 0 {
		return s.single(t, limits)
	}
	var allowed, denied, done, failed atomic.Int64
	var callers sync.WaitGroup
	for range s.Concurrently {
		callers.Go(func() {
			members, _ := s.single(t, limits).(map[string]any)
			switch {
			case members["allowed"] == true:
				allowed.Add(1)
			case members["allowed"] == false:
				denied.Add(1)
			case members["done"] == true:
				done.Add(1)
			default:
				failed.Add(1)
			}
		})
	}
	callers.Wait()
	return plain(t, map[string]int64{
		"allowed": allowed.Load(), "denied": denied.Load(), "done": done.Load(), "failed": failed.Load(),
	})
}

func (s *step) single(t *testing.T, limits *client.Client) any {
	ctx := t.Context()
	switch s.Do {
	case "refund":
		return done(t, limits.Refund(ctx, s.Receipt))
	case "confirm":
		return done(t, limits.Confirm(ctx, s.Receipt))
	case "reset":
		return done(t, limits.Reset(ctx, s.Policy, s.Identifier))
	case "release":
		return done(t, limits.Release(ctx, s.Reservation))
	case "explain":
		e, err := limits.Explain(ctx, s.Policy, s.Identifier)
		return explained(t, &e, err)
	case "close":
		return done(t, limits.Close())
	case "wait":
		within, cancel := context.WithTimeout(ctx, time.Duration(s.WithinMS)*time.Millisecond)
		defer cancel()
		d, err := limits.Wait(within, demandsOf(s.Demands)...)
		return view(t, &d, err)
	case "batch":
		return s.batch(ctx, t, limits)
	}
	d, err := limits.Do(ctx, s.call())
	return view(t, &d, err)
}

func (s *step) call() client.Call {
	c := client.Call{Op: client.Op(s.Do), Demands: demandsOf(s.Demands), IdempotencyKey: s.IdempotencyKey}
	switch s.Do {
	case "reserve":
		c.Op, c.Reserve = client.OpCheck, time.Duration(s.HoldMS)*time.Millisecond
	case "settle":
		c.Op, c.Reservation = client.OpRecord, s.Reservation
		if s.Cost != nil {
			c.Cost = client.Settlement("", *s.Cost).Cost
		}
	}
	return c
}

func (s *step) batch(ctx context.Context, t *testing.T, limits *client.Client) any {
	calls := make([]client.Call, len(s.Calls))
	for i, c := range s.Calls {
		calls[i] = client.Call{
			Op: client.Op(c.Op), Demands: demandsOf(c.Demands), IdempotencyKey: c.IdempotencyKey, Receipt: c.Receipt,
			Reserve: time.Duration(c.ReserveMS) * time.Millisecond,
		}
	}
	results, err := limits.Batch(ctx, calls)
	if err != nil {
		return done(t, err)
	}
	views := make([]any, len(results))
	for i := range results {
		if calls[i].Op == client.OpConfirm {
			views[i] = done(t, results[i].Err)
		} else {
			views[i] = view(t, &results[i].Decision, results[i].Err)
		}
	}
	return map[string]any{"results": views}
}

func demandsOf(demands []demand) []client.Demand {
	list := make([]client.Demand, len(demands))
	for i, d := range demands {
		list[i] = client.Demand(d)
	}
	return list
}

// kinds are the kinds of errors, the more specific ones first.
var kinds = []struct {
	err  error
	name string
}{
	{client.ErrUnknownPolicy, "unknown_policy"}, {client.ErrCostTooLarge, "cost_too_large"}, {client.ErrKeyReused, "key_reused"},
	{client.ErrNoReceipt, "no_receipt"}, {client.ErrInvalid, "invalid"}, {client.ErrUnavailable, "unavailable"},
	{client.ErrClosed, "closed"}, {client.ErrNoRoom, "no_room"},
}

func done(t *testing.T, err error) any {
	if err == nil {
		return map[string]any{"done": true}
	}
	return view(t, nil, err)
}

// view returns the result of a call in the form of the suite.
func view(t *testing.T, d *client.Decision, err error) any {
	if err == nil {
		return plain(t, viewOf(d))
	}
	e := map[string]any{"kind": "other"}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			e["kind"] = k.name
			break
		}
	}
	if call := (*client.CallError)(nil); errors.As(err, &call) {
		e["op"], e["recorded"] = call.Op, string(call.Recorded)
	}
	if p := (*client.Problem)(nil); errors.As(err, &p) {
		e["status"], e["field"] = p.Status, p.Field
	}
	return plain(t, map[string]any{"error": e})
}

func viewOf(d *client.Decision) map[string]any {
	v := map[string]any{
		"allowed": d.Allowed, "would_allow": d.WouldAllow, "policy": d.Policy, "limit": d.Limit, "remaining": d.Remaining,
		"used": d.Used, "reset_after_ms": d.ResetAfter.Milliseconds(), "retry_after_ms": wait(d.RetryAfter),
		"settled": d.Settled, "over": d.Over, "mode": d.Mode, "blocked": d.Blocked, "degraded": d.Degraded, "replayed": d.Replayed,
	}
	limits := make([]any, len(d.Limits))
	for i := range d.Limits {
		limits[i] = limitOf(&d.Limits[i])
	}
	v["limits"] = limits
	for name, text := range map[string]string{
		"receipt": d.Receipt, "release": d.Release, "reservation": d.Reservation, "override": string(d.Override),
		"reason": string(d.Reason), "recorded": string(d.Recorded),
	} {
		if text != "" {
			v[name] = text
		}
	}
	if len(d.Demands) > 0 {
		demands := make([]any, len(d.Demands))
		for i := range d.Demands {
			demands[i] = viewOf(&d.Demands[i])
		}
		v["demands"] = demands
	}
	return v
}

func limitOf(l *client.LimitDecision) map[string]any {
	limit := map[string]any{
		"name": l.Name, "algorithm": l.Algorithm, "limit": l.Limit, "window_ms": l.Window.Milliseconds(), "allowed": l.Allowed,
		"used": l.Used, "remaining": l.Remaining, "reset_after_ms": l.ResetAfter.Milliseconds(), "retry_after_ms": wait(l.RetryAfter),
	}
	if l.Shadow {
		limit["would_deny"] = l.WouldDeny
	}
	return limit
}

// explained returns an explanation in the form of the suite.
func explained(t *testing.T, e *client.Explanation, err error) any {
	if err != nil {
		return view(t, nil, err)
	}
	limits := make([]any, len(e.Limits))
	for i := range e.Limits {
		limit := limitOf(&e.Limits[i].LimitDecision)
		limit["policy_limit"] = e.Limits[i].PolicyLimit
		limits[i] = limit
	}
	deniedBy := append([]string{}, e.DeniedBy...)
	return plain(t, map[string]any{
		"policy": e.Policy, "key": e.Key, "allowed": e.Allowed, "would_allow": e.WouldAllow, "because": e.Because,
		"detail": e.Detail, "retry_after_ms": wait(e.RetryAfter), "denied_by": deniedBy, "mode": e.Mode,
		"guarantee": e.Guarantee, "degraded": e.Degraded, "limits": limits, "override": e.Override, "block": e.Block,
	})
}

func wait(d time.Duration) any {
	if d == client.Never {
		return nil
	}
	return d.Milliseconds()
}

// nobody returns a URL where no service listens.
func nobody(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return "http://" + strings.Replace(l.Addr().String(), "[::1]", "127.0.0.1", 1)
}
