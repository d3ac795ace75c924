package remote

import (
	"strings"
	"unicode"
)

// failure is a failure to get an answer, and what to do.
type failure struct {
	what string
	cure string // sentences; may be empty
}

// Error returns what failed and, in a line of its own, what to do.
func (e *failure) Error() string {
	if e.cure == "" {
		return e.what
	}
	return e.what + "\n  " + e.cure
}

const (
	serverNamedBy = "The server to ask is named by --server or RATELIMITD_SERVER."
	runningThere  = `Is "ratelimitd serve" running there? `
)

// Whether an event is recorded, in the words of answers.
const (
	RecordedNo      = "no"
	RecordedYes     = "yes"
	RecordedUnknown = "unknown"
)

// maxShownBytes bounds how much is shown of a text that a server chose.
const maxShownBytes = 500

// Printable is text of a server without what would steer a terminal.
func Printable(text string) string {
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
