package decode

// isWellFormed reports whether text is one JSON value (RFC 8259) with nothing around it. It is several times as fast as
// encoding/json, and accepts no text that encoding/json rejects. A text that it rejects may still be valid, if it is
// nested too deeply.
func isWellFormed(text []byte) bool { return endOfValue(text, 0, maxDepth) == len(text) }

// maxDepth bounds the nesting that isWellFormed follows: no request has more than four.
const maxDepth = 16

// malformed is returned for text that is not JSON.
const malformed = -1

// endOfValue returns the index after the value at b[i], which may be nested up to depth; malformed if there is none.
func endOfValue(b []byte, i, depth int) int {
	if i >= len(b) {
		return malformed
	}
	switch c := b[i]; {
	case c == '"':
		return endOfText(b, i)
	case c == '{' && depth > 0:
		return endOfList(b, i, '}', depth-1, endOfMember)
	case c == '[' && depth > 0:
		return endOfList(b, i, ']', depth-1, endOfValue)
	case c == '-' || isDigit(c):
		return endOfNumber(b, i)
	}
	return endOfName(b, i)
}

// endOfList returns the index after the bracket that closes the one at i.
func endOfList(b []byte, i int, closing byte, depth int, endOfElement func(b []byte, i, depth int) int) int {
	i = afterSpace(b, i+1)
	if at(b, i) == closing {
		return i + 1
	}
	for {
		if i = endOfElement(b, i, depth); i == malformed {
			return malformed
		}
		i = afterSpace(b, i)
		switch at(b, i) {
		case closing:
			return i + 1
		case ',':
			i = afterSpace(b, i+1)
		default:
			return malformed
		}
	}
}

// endOfMember returns the index after the name and the value that start at i.
func endOfMember(b []byte, i, depth int) int {
	if i = endOfText(b, i); i == malformed {
		return malformed
	}
	if i = afterSpace(b, i); at(b, i) != ':' {
		return malformed
	}
	return endOfValue(b, afterSpace(b, i+1), depth)
}

// endOfText returns the index after the closing quote of the string at i.
func endOfText(b []byte, i int) int {
	if at(b, i) != '"' {
		return malformed
	}
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return malformed
		case c == '\\':
			if i = endOfEscape(b, i+1); i == malformed {
				return malformed
			}
		}
	}
	return malformed
}

// endOfEscape returns the index of the last byte of the escape whose letter is at i.
func endOfEscape(b []byte, i int) int {
	switch at(b, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		for end := i + 4; i < end; {
			if i++; !isHex(at(b, i)) {
				return malformed
			}
		}
		return i
	}
	return malformed
}

// endOfNumber returns the index after the number at i.
func endOfNumber(b []byte, i int) int {
	if b[i] == '-' {
		i++
	}
	if at(b, i) == '0' {
		i++
	} else if i = endOfDigits(b, i); i == malformed {
		return malformed
	}
	if at(b, i) == '.' {
		if i = endOfDigits(b, i+1); i == malformed {
			return malformed
		}
	}
	if c := at(b, i); c != 'e' && c != 'E' {
		return i
	}
	i++
	if c := at(b, i); c == '+' || c == '-' {
		i++
	}
	return endOfDigits(b, i)
}

// endOfDigits returns the index after the digits at i, malformed if there are none.
func endOfDigits(b []byte, i int) int {
	if !isDigit(at(b, i)) {
		return malformed
	}
	for isDigit(at(b, i)) {
		i++
	}
	return i
}

// endOfName returns the index after true, false or null at i.
func endOfName(b []byte, i int) int {
	for _, name := range [...]string{"true", "false", "null"} {
		if end := i + len(name); end <= len(b) && string(b[i:end]) == name {
			return end
		}
	}
	return malformed
}

func afterSpace(b []byte, i int) int {
	for c := at(b, i); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = at(b, i) {
		i++
	}
	return i
}

// at returns b[i], or past the end a byte that JSON does not contain.
func at(b []byte, i int) byte {
	if i < len(b) {
		return b[i]
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
