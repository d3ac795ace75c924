package main

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

var testRules = []rule{{Name: "per-hour", Limit: 10, WindowMS: 3_600_000}, {Name: "cooldown", Limit: 1, WindowMS: 30_000}}

func TestTheTightestRuleSaysTheMost(t *testing.T) {
	for _, c := range []struct {
		took time.Duration
		want int
	}{
		{0, 1}, {29999 * time.Millisecond, 1}, {30 * time.Second, 2}, {40 * time.Second, 2},
		{269 * time.Second, 9}, {270 * time.Second, 10}, {59 * time.Minute, 10}, {time.Hour, 20},
	} {
		if got := (&report{rules: testRules, took: c.took}).most(); got != c.want {
			t.Errorf("in %v: %d, want %d", c.took, got, c.want)
		}
	}
}

func testReport() *report {
	return &report{
		rules: testRules, took: time.Second, target: "+447700900001",
		visits: []visit{
			{caller: once, typed: "+447700900001"}, {caller: once, typed: "+447700900002"}, {caller: walker, typed: "+447700900002"},
		},
		results: []result{
			{status: http.StatusAccepted}, {status: http.StatusAccepted}, {status: http.StatusTooManyRequests, retryAfter: 9 * time.Second},
		},
		sent: map[Phone]int{"+447700900001": 1, "+447700900002": 1},
	}
}

func TestCheckFindsMistakes(t *testing.T) {
	if err := testReport().check(); err != nil {
		t.Errorf("a good report: %v", err)
	}
	tooMuch := testReport()
	tooMuch.sent["+447700900001"] = 2
	if err := tooMuch.check(); err == nil || !strings.Contains(err.Error(), "2 codes where the limits allow 1") {
		t.Errorf("a second code: %v", err)
	}
	untold := testReport()
	untold.results[0].status = http.StatusServiceUnavailable
	if err := untold.check(); err == nil || !strings.Contains(err.Error(), "sent 2 codes, but 1 callers were told") {
		t.Errorf("a code without an answer: %v", err)
	}
}

func TestPercentile(t *testing.T) {
	var sorted []time.Duration
	if got := percentile(sorted, 99); got != 0 {
		t.Errorf("without values: %v", got)
	}
	for i := range 200 {
		sorted = append(sorted, time.Duration(i+1)*time.Millisecond)
	}
	for p, want := range map[int]time.Duration{50: 100 * time.Millisecond, 99: 198 * time.Millisecond, 100: 200 * time.Millisecond} {
		if got := percentile(sorted, p); got != want {
			t.Errorf("p%d: %v, want %v", p, got, want)
		}
	}
}
