package admin

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// busy is an instance of which there is more to tell than a small terminal shows.
func busy() (*ui.State, *shadowTable) {
	offset := -0.001
	now := time.Date(2026, 11, 29, 12, 30, 0, 0, time.Local)
	s := &ui.State{
		Now: now,
		Instance: ui.Instance{
			Started: now.Add(-3 * time.Hour),
			Name:    "a-machine-whose-name-is-long.example.com, process 4711", Version: "v0.1.0", Store: "cassandra", ClockToleranceMS: 100,
		},
		Clock:     ui.Clock{OffsetMS: &offset, WithinTolerance: true},
		Decisions: ui.Decisions{Allowed: 1, Denied: 9, DeniedFor: ui.Reasons{OverLimit: 4, Blocked: 3, Refused: 2}},
		Members:   &ui.Members{Mode: "owners"},
		LeftOut:   3,
	}
	long := strings.Repeat("a-long-name-", 5) + "end"
	for i := range 30 {
		decisions := ui.Decisions{Allowed: 1e7, Denied: 3e6}
		s.Policies = append(s.Policies, ui.PolicyState{Name: fmt.Sprint(i, long), Mode: "enforce", Decisions: decisions})
	}
	for i := range 10 {
		s.Worst = append(s.Worst, ui.WorstKey{Policy: long, Key: strings.Repeat("5f0c9d1e", 4), Attempts: int64(123456 - i)})
	}
	s.Scope = ui.ScopeInstances
	s.Unanswered = []ui.Unanswered{{Instance: "7QK3M2XWYB4", Address: long + ":7946", Reason: "it did not answer"}}
	for i := range 5 {
		if i < 4 {
			s.Instances = append(s.Instances, ui.InstanceState{ID: fmt.Sprint("7QK3M2XWYB", i), Decisions: ui.Decisions{AllowedPerSecond: 12.5}})
		}
		s.Members.List = append(s.Members.List, ui.Member{ID: fmt.Sprint("7QK3M2XWYB", i), Address: long + ":7946", Share: 0.2})
	}
	used := 0.75
	for i := range 7 {
		s.Confirmations = append(s.Confirmations, ui.ConfirmationState{
			Policy: fmt.Sprint(i, long), Country: "DE", Sent: 123456, Confirmed: 98765, Unconfirmed: 24691, BoundUsed: &used,
		})
	}
	var told shadowTable
	for range 5 {
		told.policies = append(told.policies, shadows{Policy: long, Calls: 10, Limits: []shadowLimit{{Name: long, WouldDeny: 5}}})
	}
	return s, &told
}

// top80x24 is a terminal of 80 columns and 24 lines, the last of which is the cursor's.
const top80x24 = `12:30:00, 4 of 5 instances, asked: up 3h0m0s: a-machine-whose-name-is-long.exam…
decisions   0.0/s allowed, 0.0/s denied, 0.0/s would be denied
last hour   1 allowed, 9 denied: 4 over limit, 3 blocked, 2 refused
latency     p50 -, p99 -
store       cassandra is not ready: p50 -, p99 -
clock       0.00 ms from the store's, 100 ms tolerated
missing     7QK3M2XWYB4: it did not answer (a-long-name-a-long-name-a-long-name…

POLICY (1 of 33)    MODE     ALLOW/S  DENY/S   ALLOW/H   DENY/H   SHARE  WOULD/H
0a-long-name-a-lo…  enforce      0.0     0.0  10000000  3000000  23.1 %        0
and 3 quieter policies

SENT UNDER (1 of 7)       TO  SENT/D  CONFIRMED/D   SHARE  UNCONFIRMED/D   BOUND
0a-long-name-a-long-nam…  DE  123456        98765  80.0 %          24691  75.0 %

FURTHEST PAST A LIMIT (1 of 10)   POLICY                                ATTEMPTS
5f0c9d1e5f0c9d1e5f0c9d1e5f0c9d1e  a-long-name-a-long-name-a-long-name…    123456

MEMBER (1 of 5)  ADDRESS                               DECIDES/S            OWNS
7QK3M2XWYB0      a-long-name-a-long-name-a-long-name…       12.5  20.0 % of keys

SHADOW …  LIMIT     CALLS  WOULD DENY   SHARE  CALLERS             LAST 24 HOURS
a-long-…  a-long-…     10           5  50.0 %        ?  ························
`

// TestTopFits holds that a terminal of 80 columns and 24 lines has each table, with all of its columns.
func TestTopFits(t *testing.T) {
	s, told := busy()
	for _, size := range [][2]int{{80, 24}, {100, 30}, {200, 60}} {
		var out bytes.Buffer
		writeFrame(&out, s, told, size[0], size[1]-1)
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) > size[1]-1 {
			t.Errorf("%v: %d lines\n%s", size, len(lines), &out)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > size[0] {
				t.Errorf("%v: %d columns: %s", size, n, line)
			}
		}
		for _, want := range []string{
			"ATTEMPTS\n", " 123456\n", "WOULD/H\n", "OWNS\n", "20.0 % of keys\n", "LAST 24 HOURS\n", "POLICY (", " of 33)", "23.1 %",
			"BOUND\n", "123456        98765  80.0 %          24691  75.0 %\n",
			", 4 of 5 instances, asked: up 3h0m0s: ", "missing     7QK3M2XWYB4: it did not answer (a-long-name-", "  12.5  ",
			": 4 over limit, 3 blocked, 2 refused\n", "clock       0.00 ms from the store's",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%v: no %q in\n%s", size, want, &out)
			}
		}
	}
	var small bytes.Buffer
	writeFrame(&small, s, told, 80, 23)
	if got := small.String(); got != top80x24 {
		t.Errorf("got\n%s\nwant\n%s", got, top80x24)
	}
	var all bytes.Buffer
	writeFrame(&all, s, told, 0, 0)
	if n := strings.Count(all.String(), "  enforce  "); n != 30 || strings.Contains(all.String(), "…") {
		t.Errorf("without a terminal %d policies are whole:\n%s", n, &all)
	}
}

// TestPercent has two decimals for less than one percent: a few denials are not none.
func TestPercent(t *testing.T) {
	for want, of := range map[string][2]float64{"-": {0, 0}, "0.0 %": {0, 9}, "0.04 %": {4, 10_000}, "1.0 %": {1, 100}, "100.0 %": {3, 3}} {
		if got := percent(of[0], of[1]); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
}

// TestSigned has a sign where there is something to sign.
func TestSigned(t *testing.T) {
	for ms, want := range map[float64]string{
		-0.001: "0.00 ms", 0.004: "0.00 ms", 0: "0.00 ms", -0.01: "-0.01 ms", 3: "+3.00 ms", -20: "-20.00 ms",
	} {
		if got := signed(ms); got != want {
			t.Errorf("%g: %q, want %q", ms, got, want)
		}
	}
}

// TestTopTellsOfCallsThatOtherLimitsDenied holds that a line names each of a few policies whose calls were denied more often
// than by the policy itself.
func TestTopTellsOfCallsThatOtherLimitsDenied(t *testing.T) {
	s := &ui.State{LeftOut: 2}
	for i := range 5 {
		s.Policies = append(s.Policies, ui.PolicyState{
			Name: fmt.Sprintf("p%d", i), Decisions: ui.Decisions{Allowed: 6}, Calls: ui.Calls{Allowed: 3, Denied: 3},
		})
	}
	s.Policies = append(s.Policies, ui.PolicyState{Name: "same", Decisions: ui.Decisions{Denied: 3}, Calls: ui.Calls{Denied: 3}})
	notes := policyTable(s).notes
	if len(notes) != callsNoted+1 || notes[0] != "3 of 6 calls for p0 were denied, also by other limits of the call" {
		t.Errorf("the notes are %q", notes)
	}
}
