package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/ratelimitd/ratelimitd/internal/api"
)

// printDecision writes d, which verb was answered with, in the format.
func printDecision(w io.Writer, format, verb string, d *decision) error {
	var out bytes.Buffer // so that nothing is printed by half
	if format == outputJSON {
		if err := json.Indent(&out, bytes.TrimSpace(d.document), "", "  "); err != nil {
			return err
		}
		out.WriteByte('\n')
	} else {
		writeTable(&out, verb, d)
	}
	_, err := w.Write(out.Bytes())
	return err
}

// writeTable writes a line that says it all, and a row for each limit.
func writeTable(out *bytes.Buffer, verb string, d *decision) {
	fmt.Fprintf(out, "%s %s%s\n", verdict(verb, d), d.decider(), outlook(d))
	if d.Degraded {
		fmt.Fprintf(out, "degraded: the store did not answer, and the policy's on_store_error decided; recorded: %s\n", printable(d.Recorded))
	}
	if d.replayed {
		fmt.Fprintln(out, "replayed: the recorded answer to an earlier request with this idempotency key; nothing was counted now")
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAME\tALGORITHM\tLIMIT\tUSED\tREMAINING\tRESET\tRETRY AFTER")
	for i := range d.Limits {
		l := &d.Limits[i]
		used := l.used()
		if d.unseen() {
			used = "?"
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d\t%s\t%s\n", printable(l.Name), printable(l.Algorithm), l.Limit, used, l.Remaining,
			cell(&l.ResetAfterMS), cell(l.RetryAfterMS))
	}
	_ = table.Flush() // into a buffer
	if d.Receipt != "" {
		fmt.Fprintf(out, "receipt: %s\n", printable(d.Receipt))
	}
	if d.Reservation != "" {
		fmt.Fprintf(out, "reservation: %s\n", printable(d.Reservation))
	}
}

// used returns how much is used. Past the limit a server tells of a part of it.
func (l *limitDecision) used() string {
	if l.Used > l.Limit && l.Remaining == 0 {
		return fmt.Sprintf("at least %d", l.Used)
	}
	return fmt.Sprint(l.Used)
}

func verdict(verb string, d *decision) string {
	switch {
	case !*d.Allowed:
		return "denied"
	case verb == verbRecord && d.Mode != modeOff && !d.Degraded:
		return "recorded"
	}
	return "allowed"
}

const modeOff = "off"

// The kinds of overrides that the tables know.
const (
	overrideAllow = "allow"
	overrideBlock = "block"
)

// unseen reports whether an override decided without looking at what is used.
func (d *decision) unseen() bool { return d.Override == overrideAllow || d.Override == overrideBlock }

// decider says what decided.
func (d *decision) decider() string {
	policy, limit := printable(d.Policy), printable(d.tightest().Name)
	switch {
	case d.unseen():
		return "under " + policy + ", by an override (" + printable(d.Override) + ")"
	case d.Override != "":
		return "under " + limit + " of " + policy + ", by an override (" + printable(d.Override) + ")"
	case d.Blocked:
		return "under " + policy + ", by a block after an earlier denial"
	}
	return "under " + limit + " of " + policy
}

// outlook is what else the first line says.
func outlook(d *decision) string {
	switch {
	case !*d.Allowed:
		return ": " + d.advice()
	case d.Override == overrideAllow:
		return ": nothing is counted"
	case d.Mode == modeOff:
		return ", which is off: nothing is counted"
	case d.WouldAllow != nil && !*d.WouldAllow:
		return ", in mode shadow; enforced, it would be denied: " + d.tightest().advice()
	}
	return fmt.Sprintf(": %d of %d remaining", d.Remaining, d.Limit)
}

// tightest returns the limit that d's own members speak of. In mode shadow d has
// not its wait.
func (d *decision) tightest() *limitDecision {
	denies := !*d.Allowed || d.WouldAllow != nil && !*d.WouldAllow
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.Allowed != denies && l.Limit == d.Limit && l.Remaining == d.Remaining && l.ResetAfterMS == d.ResetAfterMS {
			return l
		}
	}
	return &d.Limits[0]
}

// advice says how long to wait.
func (w *waits) advice() string {
	if w.RetryAfterMS == nil {
		return "no wait would help"
	}
	return "retry after " + duration(*w.RetryAfterMS)
}

// cell is a wait in the table.
func cell(milliseconds *int64) string {
	switch {
	case milliseconds == nil:
		return "never"
	case *milliseconds == 0:
		return "-"
	}
	return duration(*milliseconds)
}

// duration returns milliseconds for people.
func duration(milliseconds int64) string { return api.ForPeople(milliseconds) }
