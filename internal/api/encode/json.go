package encode

import (
	"encoding/binary"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

func appendMember(b []byte, name, text string) []byte { return appendString(append(b, name...), text) }

// appendPlain appends before, and a text of letters, digits, '.', '-' and '_' such as a token of the engine or the name
// of a policy or limit.
func appendPlain(b []byte, before, text string) []byte {
	return append(append(append(b, before...), text...), '"')
}

// AppendInt appends name and n.
func AppendInt(b []byte, name string, n int64) []byte {
	return strconv.AppendInt(append(b, name...), n, 10)
}

func appendBool(b []byte, name string, v bool) []byte {
	return strconv.AppendBool(append(b, name...), v)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// appendString appends text as a JSON string. Nearly every text is plain ASCII; encoding/json encodes the others.
func appendString(b []byte, text string) []byte {
	if !isPlain(text) {
		quoted, _ := json.Marshal(text) // a string always marshals
		return append(b, quoted...)
	}
	return append(append(append(b, '"'), text...), '"')
}

// isPlain reports whether text is ASCII that needs no escapes in a JSON string. It checks eight bytes at a time: the
// lowest other byte has its highest bit set, or one of the subtractions sets it. If there is no other byte, no
// subtraction borrows from the next one.
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
