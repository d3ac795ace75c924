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

// aftermath is the sentence for what a failed verb left behind; empty where there
// is nothing to say.
func aftermath(verb, recorded string) string {
	switch {
	case verb == verbReset && recorded == recordedNo:
		return "Nothing was forgotten."
	case verb == verbReset && recorded == recordedUnknown:
		return "Whether the counts were forgotten is unknown: reset again."
	case verb != verbTake && verb != verbRecord:
		return "" // nothing could have happened
	case recorded == recordedNo:
		return "Nothing was recorded."
	case recorded == recordedYes:
		return "The event was recorded all the same."
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
