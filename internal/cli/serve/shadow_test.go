package serve_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// shadowBody is an answer of GET /v1/policies/{name}/shadow, as far as it is looked at here.
type shadowBody struct {
	Scope              string
	Calls, Denied      int64
	WouldDeny, Callers int64
	Limits             []struct{ Name string }
	Instances          []struct{ Calls int64 }
	Unanswered         []struct{ Instance, Address, Reason string }
}

func shadowOf(t *testing.T, s *clitest.Server, policy string) (b shadowBody) {
	t.Helper()
	var read struct {
		shadowBody
		WouldDeny int64 `json:"would_deny"`
	}
	if text := s.Body(t, "/v1/policies/"+policy+"/shadow"); json.Unmarshal([]byte(text), &read) != nil {
		t.Fatal(text)
	}
	read.shadowBody.WouldDeny = read.WouldDeny
	return read.shadowBody
}

const nineAndTwo = "policies: [{name: p, limits: [{algorithm: sliding-log, limit: 9, window: 1h}, " +
	"{name: next, algorithm: sliding-log, limit: 2, window: 1h, shadow: true}]}]\n"

// TestShadowSaysWhoseCallsAreMissing has a member that no peer can ask, and names it.
func TestShadowSaysWhoseCallsAreMissing(t *testing.T) {
	flags := onCassandra(t, "--policies="+clitest.Write(t, "p.yaml", nineAndTwo))
	asked := clitest.Start(t, nil, append(flags, "--peer-listen=127.0.0.1:0")...)
	clitest.Start(t, nil, flags...)
	asked.WaitForMetric(t, "\nratelimitd_members 2\n")
	b := shadowOf(t, asked, "p")
	if len(b.Instances) != 1 || len(b.Unanswered) != 1 || b.Unanswered[0].Instance == "" ||
		!strings.Contains(b.Unanswered[0].Reason, "no address") {
		t.Errorf("%+v", b)
	}
}

// TestShadowOfAllInstances asks each of two instances, which decide together, what a shadow would have denied on both.
func TestShadowOfAllInstances(t *testing.T) {
	all := startMembers(t, 2, "--policies="+clitest.Write(t, "p.yaml", nineAndTwo))
	for _, s := range all {
		for range 3 {
			s.Take(t, "p")
		}
	}
	for _, s := range all {
		b := shadowOf(t, s, "p")
		if b.Scope != "instances" || b.Calls != 6 || b.Denied != 0 || b.WouldDeny != 4 || b.Callers != 1 ||
			len(b.Instances) != 2 || len(b.Unanswered) != 0 {
			t.Errorf("%+v", b)
		}
	}
}

// TestWhatBecomesOfUnitsIsCounted confirms a take and refunds another one, and finds both in the metrics.
func TestWhatBecomesOfUnitsIsCounted(t *testing.T) {
	s := clitest.Start(t, nil, "--policies="+clitest.Write(t, "p.yaml",
		"policies: [{name: p, limits: [{algorithm: conversion, unconfirmed: 9, min_conversion: 50%, window: 1h}]}]\n"))
	for _, route := range []string{"confirm", "refund"} {
		resp, err := http.Post(s.URL+"/v1/take", "application/json", strings.NewReader(clitest.TakeBody("p")))
		if err != nil {
			t.Fatal(err)
		}
		var took struct{ Receipt string }
		err = json.NewDecoder(resp.Body).Decode(&took)
		resp.Body.Close()
		if err != nil || took.Receipt == "" {
			t.Fatalf("a take without a receipt: %v", err)
		}
		resp, err = http.Post(s.URL+"/v1/"+route, "application/json", strings.NewReader(`{"receipt": "`+took.Receipt+`"}`))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(route, resp, err)
		}
		resp.Body.Close()
	}
	for name, want := range map[string]string{"sent": "2", "confirmed": "1", "refunded": "1"} {
		s.WaitForMetric(t, "\nratelimitd_"+name+`_units_total{country="",policy="p"} `+want+"\n")
	}
}
