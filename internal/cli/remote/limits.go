package remote

import (
	"bytes"
	"fmt"
	"text/tabwriter"

	"github.com/ratelimitd/ratelimitd/internal/api/encode"
)

// Waits are times until a limit has room, or is unused again.
type Waits struct {
	ResetAfterMS int64  `json:"reset_after_ms"`
	RetryAfterMS *int64 `json:"retry_after_ms"` // nil: waiting does not help
}

// Advice says how long to wait.
func (w *Waits) Advice() string {
	if w.RetryAfterMS == nil {
		return "no wait would help"
	}
	return "retry after " + Duration(*w.RetryAfterMS)
}

// Limit is one limit of a policy in an answer.
type Limit struct {
	Name        string `json:"name"`
	Algorithm   string `json:"algorithm"`
	Allowed     bool   `json:"allowed"`
	Limit       int64  `json:"limit"`
	PolicyLimit *int64 `json:"policy_limit"` // of an explanation: without an override
	Remaining   int64  `json:"remaining"`
	Used        int64  `json:"used"`
	WouldDeny   *bool  `json:"would_deny"` // of a shadow, which denies nothing; nil: it is none
	Waits
}

// WriteLimits writes a table with a row for each limit. For a limit in shadow mode, the last column says whether it
// would deny. usedUnknown means that counts were not read.
func WriteLimits(out *bytes.Buffer, limits []Limit, usedUnknown bool) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tALGORITHM\tLIMIT\tUSED\tREMAINING\tRESET\tRETRY AFTER")
	for i := range limits {
		l := &limits[i]
		limit, used := fmt.Sprint(l.Limit), l.used()
		if l.PolicyLimit != nil && *l.PolicyLimit != l.Limit {
			limit += fmt.Sprintf(" (policy: %d)", *l.PolicyLimit)
		}
		if usedUnknown {
			used = "?"
		}
		name, wait := Printable(l.Name), cell(l.RetryAfterMS)
		if l.WouldDeny != nil {
			name += " (shadow)"
			if *l.WouldDeny {
				wait = "would deny"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", name, Printable(l.Algorithm), limit, used, l.Remaining,
			cell(&l.ResetAfterMS), wait)
	}
	_ = table.Flush() // into a buffer
}

// used returns the used units. Past the limit, a server only reports a lower bound.
func (l *Limit) used() string {
	if l.Used > l.Limit && l.Remaining == 0 {
		return fmt.Sprintf("at least %d", l.Used)
	}
	return fmt.Sprint(l.Used)
}

// cell returns the text of a wait in the table.
func cell(milliseconds *int64) string {
	switch {
	case milliseconds == nil:
		return "never"
	case *milliseconds == 0:
		return "-"
	}
	return Duration(*milliseconds)
}

// Duration returns milliseconds for people.
func Duration(milliseconds int64) string { return encode.ForPeople(milliseconds) }
