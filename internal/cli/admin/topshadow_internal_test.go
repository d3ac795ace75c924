package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// TestShadowsOverTime draws the hours of a day, whose calls are missing once, and what was not told.
func TestShadowsOverTime(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 30, 0, 0, time.UTC)
	var p shadows
	if err := json.Unmarshal([]byte(`{"policy": "login", "calls": 0, "limits": [{"name": "next", "would_deny": 23, "hours": [
		{"start": "2026-11-27T12:00:00Z", "would_deny": 8}, {"start": "2026-11-27T13:00:00Z", "would_deny": 1},
		{"start": "2026-11-28T11:00:00Z", "would_deny": 4}, {"start": "2026-11-28T12:00:00Z", "would_deny": 0}]}],
		"unanswered": [{"instance": "B", "address": "b:1", "reason": "it is gone"}]}`), &p); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	told := shadowTable{policies: []shadows{p, p}}
	told.table(now).write(&out, 0)
	if want := "0          23      -        ?  ▁" + strings.Repeat("·", 21) + "▄·"; strings.Count(out.String(), want) != 2 {
		t.Errorf("no two rows %q in\n%s", want, &out)
	}
	if n := strings.Count(out.String(), "missing: the calls of B at b:1: it is gone\n"); n != 1 {
		t.Errorf("it says %d times whose calls are missing:\n%s", n, &out)
	}
	out.Reset()
	told.err = errors.New("nobody answers")
	told.table(now).write(&out, 0)
	if out.String() != "\nshadows are not known: nobody answers\n" {
		t.Errorf("it says %q", &out)
	}
}
