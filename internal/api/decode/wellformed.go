package decode

// isWellFormed reports whether text is one JSON value (RFC 8259) with nothing around it. It is several times as fast as
// encoding/json, and accepts no text that encoding/json rejects. A text that it rejects may still be valid, if it is
// nested too deeply.
func isWellFormed(text Value) bool { return endOfValue(text, 0, maxDepth) == len(text) }

// maxDepth bounds the nesting that isWellFormed follows: no request has more than four.
const maxDepth = 16

// malformed is returned for text that is not JSON.
const malformed = -1

// endOfValue returns the index after the value at v[i], which may be nested up to depth; malformed if there is none.
func endOfValue(v Value, i, depth int) int {
	if i >= len(v) {
		return malformed
	}
	switch c := v[i]; {
	case c == '"':
		return endOfText(v, i)
	case c == '{' && depth > 0:
		return endOfList(v, i, '}', depth-1, endOfMember)
	case c == '[' && depth > 0:
		return endOfList(v, i, ']', depth-1, endOfValue)
	case c == '-' || isDigit(c):
		return endOfNumber(v, i)
	}
	return endOfName(v, i)
}

// endOfList returns the index after the bracket that closes the one at i.
func endOfList(v Value, i int, closing byte, depth int, endOfElement func(v Value, i, depth int) int) int {
	i = afterSpace(v, i+1)
	if at(v, i) == closing {
		return i + 1
	}
	for {
		if i = endOfElement(v, i, depth); i == malformed {
			return malformed
		}
		i = afterSpace(v, i)
		switch at(v, i) {
		case closing:
			return i + 1
		case ',':
			i = afterSpace(v, i+1)
		default:
			return malformed
		}
	}
}

// endOfMember returns the index after the name and the value that start at i.
func endOfMember(v Value, i, depth int) int {
	if i = endOfText(v, i); i == malformed {
		return malformed
	}
	if i = afterSpace(v, i); at(v, i) != ':' {
		return malformed
	}
	return endOfValue(v, afterSpace(v, i+1), depth)
}

// endOfText returns the index after the closing quote of the string at i.
func endOfText(v Value, i int) int {
	if at(v, i) != '"' {
		return malformed
	}
	for i++; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return malformed
		case c == '\\':
			if i = endOfEscape(v, i+1); i == malformed {
				return malformed
			}
		}
	}
	return malformed
}

// endOfEscape returns the index of the last byte of the escape whose letter is at i.
func endOfEscape(v Value, i int) int {
	switch at(v, i) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i
	case 'u':
		for end := i + 4; i < end; {
			if i++; !isHex(at(v, i)) {
				return malformed
			}
		}
		return i
	}
	return malformed
}

// endOfNumber returns the index after the number at i.
func endOfNumber(v Value, i int) int {
	if v[i] == '-' {
		i++
	}
	if at(v, i) == '0' {
		i++
	} else if i = endOfDigits(v, i); i == malformed {
		return malformed
	}
	if at(v, i) == '.' {
		if i = endOfDigits(v, i+1); i == malformed {
			return malformed
		}
	}
	if c := at(v, i); c != 'e' && c != 'E' {
		return i
	}
	i++
	if c := at(v, i); c == '+' || c == '-' {
		i++
	}
	return endOfDigits(v, i)
}

// endOfDigits returns the index after the digits at i, malformed if there are none.
func endOfDigits(v Value, i int) int {
	if !isDigit(at(v, i)) {
		return malformed
	}
	for isDigit(at(v, i)) {
		i++
	}
	return i
}

// endOfName returns the index after true, false or null at i.
func endOfName(v Value, i int) int {
	for _, name := range [...]string{"true", "false", "null"} {
		if end := i + len(name); end <= len(v) && string(v[i:end]) == name {
			return end
		}
	}
	return malformed
}

func afterSpace(v Value, i int) int {
	for c := at(v, i); c == ' ' || c == '\t' || c == '\r' || c == '\n'; c = at(v, i) {
		i++
	}
	return i
}

// at returns v[i], or past the end a byte that JSON does not contain.
func at(v Value, i int) byte {
	if i < len(v) {
		return v[i]
	}
	return 0
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool { return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' }
