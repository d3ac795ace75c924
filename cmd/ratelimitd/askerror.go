package main

import (
	"strings"
	"unicode"
)

// askError is a failure to get an answer, and what to do.
type askError struct {
	what string
	cure string // sentences; may be empty
}

// Error returns what failed and, in a line of its own, what to do.
func (e *askError) Error() string {
	if e.cure == "" {
		return e.what
	}
	return e.what + "\n  " + e.cure
}

const serverNamedBy = "The server to ask is named by --server or RATELIMITD_SERVER."

// What became of an event, as answers say it.
const (
	recordedNo      = "no"
	recordedYes     = "yes"
	recordedUnknown = "unknown"
)

// aftermath is the sentence for what a question left behind that was not answered;
// empty where there is nothing to say.
func (q *question) aftermath(recorded string) string {
	switch q.verb {
	case verbReset:
		return afterReset(recorded)
	case verbRefund:
		return afterRefund(recorded)
	case verbOverride, verbOverrideDelete:
		return afterOverride(recorded)
	case verbTake, verbRecord:
		return q.afterRecord(recorded)
	}
	if q.holds && recorded == recordedUnknown {
		return "Units may be held until the time of --reserve is over."
	}
	return "" // nothing could have happened
}

func afterReset(recorded string) string {
	switch recorded {
	case recordedNo:
		return "Nothing was forgotten."
	case recordedUnknown:
		return "Whether the counts were forgotten is unknown: reset again."
	}
	return ""
}

func afterOverride(recorded string) string {
	switch recorded {
	case recordedNo:
		return "Nothing was changed."
	case recordedUnknown:
		return "Whether it was changed is unknown: do it again, or see with override get."
	}
	return ""
}

func afterRefund(recorded string) string {
	switch recorded {
	case recordedNo, recordedYes: // not asked; the units still count
		return "Nothing was refunded."
	case recordedUnknown:
		return "Whether it was refunded is unknown: refund again, it gives back once."
	}
	return ""
}

func (q *question) afterRecord(recorded string) string {
	switch {
	case recorded == recordedNo:
		return "Nothing was recorded."
	case recorded == recordedYes:
		return "The event was recorded all the same."
	case recorded == recordedUnknown && q.idempotencyKey != "":
		return "Whether the event was recorded is unknown: try again with the same --idempotency-key."
	case recorded == recordedUnknown:
		return "Whether the event was recorded is unknown: another try may count it twice."
	}
	return ""
}

// maxShownBytes bounds what is shown of a text that a server chose.
const maxShownBytes = 500

// printable is text of a server without what would steer a terminal.
func printable(text string) string {
	if len(text) > maxShownBytes {
		text = strings.ToValidUTF8(text[:maxShownBytes], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
