//go:build unix

package faults

import (
	"io"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func newServer(t *testing.T) *httptest.Server {
	t.Helper()
	engine := limiter.New(embedded.New(nil), nil)
	var policies []policy.Policy
	for name, until := range map[string]policy.Until{"p": "", "q": "", "confirmed": policy.UntilConfirmed} {
		policies = append(policies, policy.Policy{
			Name: name, Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 2, Window: time.Hour, Until: until}},
		})
	}
	if err := engine.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(api.New(engine, nil))
	t.Cleanup(server.Close)
	return server
}

// The client understands answers to takes, denials, two demands, repetitions and reservations.
func TestAnswersAreUnderstood(t *testing.T) {
	server := newServer(t)
	p, q := history.Demand{Policy: "p", Identifier: "a"}, history.Demand{Policy: "q", Identifier: "a"}
	held := ""
	for _, test := range []struct {
		name     string
		call     history.Call
		status   int
		recorded string
		used     []int64
	}{
		{"take", history.Call{Op: history.Take, Demands: []history.Demand{p}, Key: "k"}, 200, history.Yes, []int64{1}},
		{"repetition", history.Call{Op: history.Take, Demands: []history.Demand{p}, Key: "k"}, 200, history.Yes, []int64{1}},
		{"both", history.Call{Op: history.Take, Demands: []history.Demand{p, q}}, 200, history.Yes, []int64{2, 1}},
		{"denial", history.Call{Op: history.Take, Demands: []history.Demand{p}}, 429, history.No, []int64{2}},
		{"denial of both", history.Call{Op: history.Take, Demands: []history.Demand{q, p}}, 429, history.No, []int64{1, 2}},
		{"check", history.Call{Op: history.Check, Demands: []history.Demand{q}}, 200, history.No, []int64{1}},
		{"reservation", history.Call{Op: history.Check, Demands: []history.Demand{q}, Reserve: time.Minute}, 200, history.No, []int64{2}},
		{"settled", history.Call{Op: history.Record, Settles: true}, 200, history.Yes, []int64{2}},
		{"record", history.Call{Op: history.Record, Demands: []history.Demand{q}}, 200, history.Yes, []int64{3}},
	} {
		settle := ""
		if test.call.Settles {
			settle = held
		}
		a, reservation := ask(t.Context(), server.URL, &test.call, settle)
		if reservation != "" {
			held = reservation
		}
		if a.Status != test.status || a.Recorded != test.recorded || !equal(a.Used, test.used) || a.Error != "" {
			t.Errorf("%s: %+v", test.name, a)
		}
		if a.Replayed != (test.name == "repetition") || (a.Receipt != "") != (test.recorded == history.Yes) {
			t.Errorf("%s: %+v", test.name, a)
		}
	}
	if held == "" {
		t.Error("the check returned no reservation")
	}
}

// The client understands answers to receipts.
func TestReceiptsAreUnderstood(t *testing.T) {
	server := newServer(t)
	on := []history.Demand{{Policy: "confirmed", Identifier: "a"}}
	taken, _ := ask(t.Context(), server.URL, &history.Call{Op: history.Take, Demands: on}, "")
	for _, test := range []struct {
		op       string
		receipt  string
		status   int
		replayed bool
	}{
		{history.Confirm, taken.Receipt, 200, false},
		{history.Confirm, taken.Receipt, 200, true},
		{history.Refund, taken.Receipt, 404, false},
		{history.Confirm, "another", 404, false},
	} {
		a, _ := ask(t.Context(), server.URL, &history.Call{Op: test.op, Demands: on}, test.receipt)
		if a.Status != test.status || a.Replayed != test.replayed || !a.Decided() || a.Used != nil || (a.Error != "") != (test.status == 404) {
			t.Errorf("%s: %+v", test.op, a)
		}
	}
}

func equal(a, b []int64) bool {
	for i := range a {
		if i >= len(b) || a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// A refused connection means that nothing is recorded. After a lost connection that is unknown.
func TestNoAnswer(t *testing.T) {
	server := newServer(t)
	call := history.Call{Op: history.Take, Demands: []history.Demand{{Policy: "p", Identifier: "a"}}}
	server.CloseClientConnections()
	server.Close()
	if a, _ := ask(t.Context(), server.URL, &call, ""); a.Status != 0 || a.Recorded != history.No || a.Error == "" {
		t.Errorf("%+v", a)
	}
	if a := failed(io.EOF); a.Recorded != history.Unknown {
		t.Errorf("%+v", a)
	}
}
