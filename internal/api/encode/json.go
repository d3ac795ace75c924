package encode

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"
)

// appendMember appends name, and text as a JSON string.
func appendMember(b []byte, name, text string) []byte { return appendString(append(b, name...), text) }

// appendPlain appends before, text and a closing quote. text consists of letters, digits, '.', '-' and '_', such as a
// token of the engine or the name of a policy or limit.
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

// isPlain reports whether text is ASCII that needs no escapes in a JSON string.
func isPlain(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' })
}
