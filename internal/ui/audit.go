package ui

import (
	"encoding/json"
	"slices"
	"sync"
)

// linesKept bounds the lines of the audit log that the page shows.
const linesKept = 50

// auditTail are the latest lines of the audit log. The zero value has none.
type auditTail struct {
	mu    sync.Mutex
	lines []json.RawMessage // the newest last
}

// AuditLine keeps a line that was written to the audit log, a document of JSON.
func (u *UI) AuditLine(line []byte) {
	t := &u.audit
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == linesKept {
		t.lines = slices.Delete(t.lines, 0, 1)
	}
	t.lines = append(t.lines, slices.Clone(json.RawMessage(line)))
}

// latest returns the lines about policies that may be asked about, the newest first.
func (t *auditTail) latest(may func(policy string) bool) []json.RawMessage {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := []json.RawMessage{}
	for _, line := range slices.Backward(t.lines) {
		var about struct{ Policy string }
		if json.Unmarshal(line, &about) == nil && may(about.Policy) {
			lines = append(lines, line)
		}
	}
	return lines
}
