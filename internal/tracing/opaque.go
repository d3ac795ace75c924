package tracing

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

const (
	// maxDigits is how many digits in a row an id that is logged may have. Phone numbers that are anybody's have more,
	// with their country.
	maxDigits = 9
	// maxPadded is the same for an id that begins with minPadding zeros or more, which may fill up a shorter number.
	maxPadded  = 6
	minPadding = 3
)

// IsOpaque reports whether id, of letters, digits and dashes, is none that somebody could be known by: no phone number
// that was padded to the length of an id. Dashes separate nothing. An id that was made at random is opaque most often,
// and else is logged nowhere.
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
