package tracing

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

const (
	// maxDigits is the maximum of digits in a row in an id that is logged. Phone numbers with their country have more.
	maxDigits = 9
	// maxPadded is the same for an id that begins with at least minPadding zeros, which may pad a shorter number.
	maxPadded  = 6
	minPadding = 3
)

// IsOpaque reports whether id, of letters, digits and dashes, cannot identify a person. A phone number that is padded to
// the length of an id could. Dashes are ignored. Most random ids are opaque; the others are not logged.
func IsOpaque(id string) bool {
	zeros, digits, most := 0, 0, maxDigits
	leading := true
	for _, c := range []byte(id) {
		switch {
		case c == '-':
		case leading && c == '0':
			if zeros++; zeros >= minPadding {
				most = maxPadded
			}
		case c < '0' || c > '9':
			leading, digits = false, 0
		default:
			leading = false
			if digits++; digits > most {
				return false
			}
		}
	}
	return true
}

// isOpaque is IsOpaque for the id of a trace.
func isOpaque(id trace.TraceID) bool {
	var text [2 * len(id)]byte
	hex.Encode(text[:], id[:])
	return IsOpaque(string(text[:]))
}
