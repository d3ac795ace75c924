package load

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// operation is a take in the form that a service reads.
type operation struct {
	Op, Policy, Identifier string
	Cost                   int64
}

// target serves answer on a port of its own.
func target(t *testing.T, batch int, answer http.HandlerFunc) Target {
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	return Target{
		Address: strings.TrimPrefix(server.URL, "http://"), Policy: "api", Prefix: "+49151", Batch: batch, Lifetime: time.Minute,
	}
}

func open(t *testing.T, target Target, cost int64) Caller {
	t.Helper()
	caller, err := target.Open(cost)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	return caller
}

func TestTakesOverOneConnection(t *testing.T) {
	statuses := []int{200, 429, 503, 200}
	var got []operation
	remotes := make(map[string]bool)
	caller := open(t, target(t, 0, func(w http.ResponseWriter, r *http.Request) {
		var o operation
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil || r.URL.Path != "/v1/take" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		remotes[r.RemoteAddr] = true
		got = append(got, o)
		w.WriteHeader(statuses[len(got)-1])
		fmt.Fprintln(w, strings.Repeat("x", 100*len(got)))
	}), 3)
	var sum Outcome
	for key := range uint64(4) {
		outcome, err := caller.Take([]uint64{key * 1_234_567})
		if err != nil {
			t.Fatal(err)
		}
		sum.add(outcome)
	}
	sum.Bytes = 0 // checked separately
	if want := (Outcome{Allowed: 2, Denied: 1, Failed: 1}); sum != want || len(remotes) != 1 {
		t.Errorf("%+v over %d connections, want %+v", sum, len(remotes), want)
	}
	want := []operation{
		{"", "api", "+49151000000000", 3}, {"", "api", "+49151001234567", 3},
		{"", "api", "+49151002469134", 3}, {"", "api", "+49151003703701", 3},
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked %v, want %v", got, want)
	}
}

func TestBatchesAreCountedByOperation(t *testing.T) {
	caller := open(t, target(t, 4, func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Operations []operation }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || r.URL.Path != "/v1/batch" || len(body.Operations) != 4 {
			t.Errorf("%s: %v, %v", r.URL, body, err)
		}
		if last := body.Operations[3]; last != (operation{"take", "api", "+49151123456789", 1}) {
			t.Errorf("the last operation is %v", last)
		}
		fmt.Fprint(w, `{"results":[{"status":200,"allowed":true},{"type":"…","status":429},{"status":503},{"status":429}]}`)
	}), 1)
	outcome, err := caller.Take([]uint64{1, 2, 3, 123_456_789})
	outcome.Bytes = 0
	if want := (Outcome{Allowed: 1, Denied: 2, Failed: 1}); outcome != want || err != nil {
		t.Errorf("%+v, %v; want %+v", outcome, err, want)
	}
}

func TestBytesOfAnAnswer(t *testing.T) {
	const answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nX: y\r\n\r\n{}"
	caller := open(t, target(t, 0, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte(answer + answer)) // on an error the takes fail
	}), 1)
	for range 2 {
		if outcome, err := caller.Take([]uint64{1}); err != nil || outcome != (Outcome{Allowed: 1, Bytes: int64(len(answer))}) {
			t.Errorf("%+v, %v; want %d bytes", outcome, err, len(answer))
		}
	}
}

func TestUnreadableAnswersAreErrors(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"chunks": func(w http.ResponseWriter, _ *http.Request) { _ = http.NewResponseController(w).Flush() },
		"an end": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		if outcome, err := open(t, target(t, 0, answer), 1).Take([]uint64{1}); err == nil {
			t.Errorf("%s: %+v", name, outcome)
		}
	}
}

func TestRoundRobinOpensInTurn(t *testing.T) {
	opened := make([]int, 3)
	var open []func(int64) (Caller, error)
	for i := range opened {
		open = append(open, func(cost int64) (Caller, error) {
			opened[i] += int(cost)
			return connection{}, nil
		})
	}
	next := RoundRobin(open)
	for range 7 {
		if _, err := next(10); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(opened, []int{30, 20, 20}) {
		t.Errorf("opened %v", opened)
	}
}
