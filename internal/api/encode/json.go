package encode

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

func appendMember(b []byte, name, text string) []byte { return appendString(append(b, name...), text) }

// appendPlain appends a text of letters, digits, '.', '-' and '_', as the engine's tokens and all names of policies and
// limits are, after the text before it.
func appendPlain(b []byte, before, text string) []byte {
	return append(append(append(b, before...), text...), '"')
}

// AppendInt appends n after what stands before it.
func AppendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// appendString appends text as a JSON string. Nearly every text is plain ASCII;
// encoding/json takes the rest.
func appendString(b []byte, text string) []byte {
	if !isPlain(text) {
		quoted, _ := json.Marshal(text) // a string always marshals
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), text...), '"')
}

// isPlain reports whether text is ASCII that a JSON string has as it is. It looks at eight
// bytes at a time: the lowest that is not has its highest bit set, or one of the subtractions
// sets it; where all are, none borrows from the next.
func isPlain(text string) bool {
	const each, highest = 0x0101010101010101, 0x8080808080808080
	rest := text
	for ; len(rest) >= 8; rest = rest[8:] {
		eight := binary.LittleEndian.Uint64([]byte(rest[:8]))
		low, quote, slash := eight-each*' ', eight^each*'"'-each, eight^each*'\\'-each
		if (eight|low|quote|slash)&highest != 0 {
			return false
		}
	}
	for i := range len(rest) {
		if c := rest[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}
