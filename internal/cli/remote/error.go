package remote

import (
	"strings"
	"unicode"
)

// failure is the error of a question without a useful answer, with a hint.
type failure struct {
	what string
	cure string // sentences; may be empty
}

// Error returns the failure and, on a line of its own, the hint.
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

// Values of the member recorded of answers.
const (
	RecordedNo      = "no"
	RecordedYes     = "yes"
	RecordedUnknown = "unknown"
)

// maxShownBytes is the maximum that is printed of a text from a server.
const maxShownBytes = 500

// Printable returns a text from a server, shortened and without control characters for a terminal.
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
