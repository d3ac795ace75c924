package ui

import (
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// linesKept is the number of lines of the audit log on the page.
const linesKept = 50

// auditTail has the latest lines of the audit log. The zero value has none.
type auditTail struct {
	mu    sync.Mutex
	lines []json.RawMessage // the newest last
}

// AuditLine keeps a line of the audit log, a JSON document.
func (u *UI) AuditLine(line []byte) {
	t := &u.audit
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == linesKept {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
	t.lines = append(t.lines, slices.Clone(json.RawMessage(line)))
}

// latest returns the lines, the newest first.
func (t *auditTail) latest() []json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := slices.Clone(t.lines)
	slices.Reverse(lines)
	return lines
}

// linesAbout returns the lines about policies that may permits.
func linesAbout(lines []json.RawMessage, may func(policy string) bool) (about []json.RawMessage) {
	for _, line := range lines {
		var of struct{ Policy string }
		if json.Unmarshal(line, &of) == nil && may(of.Policy) {
			about = append(about, line)
		}
	}
	return about
}

// newestLines returns the newest lines of several instances, by their own clocks, the newest first.
func newestLines(lines []json.RawMessage) []json.RawMessage {
	at := func(line json.RawMessage) time.Time {
		var of struct{ Time time.Time }
		_ = json.Unmarshal(line, &of) // the zero time is the oldest
		return of.Time
	}
	slices.SortStableFunc(lines, func(a, b json.RawMessage) int { return at(b).Compare(at(a)) })
	return lines[:min(linesKept, len(lines))]
}
