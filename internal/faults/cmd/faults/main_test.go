//go:build unix

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// keep writes a history in which this many takes were admitted under a limit of 2.
func keep(t *testing.T, admitted int) (name string) {
	t.Helper()
	h := &history.History{Header: history.Header{
		Seed: 7, Started: time.UnixMilli(1_800_000_000_000), Processes: 2, Tolerance: time.Millisecond, StoreTimeout: time.Second,
		Offsets:  []time.Duration{0},
		Policies: []history.Policy{{Name: "p", Algorithm: "sliding-log", Limit: 2, Window: time.Minute}},
	}}
	for i := range admitted + 1 {
		at := time.Duration(i) * time.Second
		answer := history.Answer{Status: 200, Allowed: true, Recorded: history.Yes, Used: []int64{int64(i + 1)}}
		if i == admitted {
			answer = history.Answer{Status: 429, Recorded: history.No, Used: []int64{int64(i)}}
		}
		h.Calls = append(h.Calls, history.Call{
			N: i + 1, Op: history.Take, Demands: []history.Demand{{Policy: "p", Identifier: "a"}}, Called: at, Returned: at + 1, Answer: answer,
		})
	}
	name = filepath.Join(t.TempDir(), "history.jsonl")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := history.Write(file, h); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestHistoriesAreCheckedAgain(t *testing.T) {
	right, wrong := keep(t, 2), keep(t, 3)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"-check", right}, exitOK, "violations                                           0"},
		{[]string{"-check", wrong}, exitViolation, "VIOLATION limit: p/a 3 admitted"},
		{[]string{"-markdown", "-check", right, wrong}, exitViolation, "| seed | 7 | 7 |"},
		{[]string{"-check", right + ".gone"}, exitFailure, "no such file"},
		{[]string{"-offsets", "soon"}, exitFailure, "-offsets"},
		{[]string{"-processes", "1"}, exitFailure, "two processes"},
		{[]string{"run"}, exitFailure, "give only flags"},
		{[]string{"-nosuch"}, exitFailure, "not defined"},
	} {
		var out, errs bytes.Buffer
		if code := run(t.Context(), test.args, &out, &errs); code != test.code || !strings.Contains(out.String()+errs.String(), test.want) {
			t.Errorf("%q: exit code %d, want %d; want %q in:\n%s%s", test.args, code, test.code, test.want, &out, &errs)
		}
	}
}

func TestOffsets(t *testing.T) {
	for list, want := range map[string]int{"": 3, "0s": 1, "100ms, -1s": 2} {
		if got, err := parseOffsets(list, time.Second); err != nil || len(got) != want {
			t.Errorf("%q: %v, %v", list, got, err)
		}
	}
}
