package decode

import (
	"encoding/json"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Value is a valid JSON value without spaces around it. Reading it is stricter than encoding/json, which accepts member
// names in any case, repeated members, and halves of characters.
//
// Values and texts within a Value share its string, so that a body needs one allocation.
type Value string

// Members are the members that an object has, among those that it may have.
type Members struct {
	names []string // 32 at most
	there uint32   // a bit for each of names
}

// Has reports whether the object has the member name.
func (m Members) Has(name string) bool {
	i := slices.Index(m.names, name)
	return i >= 0 && m.there&(1<<i) != 0
}

// Require returns an error for the first of names that is missing.
func (m Members) Require(names ...string) error {
	for _, name := range names {
		if !m.Has(name) {
			return Wrong(name, name+" is missing.")
		}
	}
	return nil
}

// ReadObject calls read for each member of v. It returns an error for members that are not among names or are repeated,
// and the errors of read. The error names the member.
func ReadObject(v Value, names []string, read func(name string, v Value) error) (Members, error) {
	seen := Members{names: names}
	if v[0] != '{' {
		return seen, v.Not("an object")
	}
	for rawName, member := range v.Members() {
		name, err := rawName.Text()
		i := slices.Index(names, name)
		switch {
		case err != nil || i < 0:
			return seen, Unknown(name, names)
		case seen.there&(1<<i) != 0:
			return seen, Wrong(name, "It is given more than once.")
		}
		seen.there |= 1 << i
		if err := read(names[i], member); err != nil {
			return seen, Under(name, err)
		}
	}
	return seen, nil
}

// Text returns v as a string.
func (v Value) Text() (string, error) {
	if v[0] != '"' {
		return "", v.Not("a string")
	}
	if strings.IndexByte(string(v), '\\') < 0 {
		return string(v[1 : len(v)-1]), nil
	}
	if v.hasLoneSurrogate() {
		return "", Wrong("", "It has an escape that is half a character (an unpaired surrogate).")
	}
	var text string
	err := json.Unmarshal([]byte(v), &text)
	return text, err
}

// hasLoneSurrogate reports whether an escape of the string v is half of a pair. RFC 8259, section 8.2, does not define
// its meaning, and replacing it would make different identifiers equal.
func (v Value) hasLoneSurrogate() bool {
	for i := 0; i < len(v); i++ {
		if v[i] != '\\' {
			continue
		}
		i++
		unit := v.codeUnit(i)
		switch {
		case unit < 0xD800 || unit > 0xDFFF:
		case unit < 0xDC00 && v[i+5] == '\\' && v.codeUnit(i+6) >= 0xDC00 && v.codeUnit(i+6) <= 0xDFFF:
			i += 6
		default:
			return true
		}
	}
	return false
}

// codeUnit returns the number of the escape uXXXX at i, -1 for another escape.
func (v Value) codeUnit(i int) int {
	if v[i] != 'u' {
		return -1
	}
	unit, err := strconv.ParseUint(string(v[i+1:i+5]), 16, 16)
	if err != nil {
		return -1
	}
	return int(unit)
}

// Integer returns v as an integer from least to most.
func (v Value) Integer(least, most int64) (int64, error) {
	if v[0] != '-' && (v[0] < '0' || v[0] > '9') {
		return 0, v.Not("an integer")
	}
	if strings.ContainsAny(string(v), ".eE") {
		return 0, Wrong("", "It must be an integer, written without fraction and exponent.")
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil || n < least || n > most {
		return 0, Wrong("", "It must be an integer from "+itoa(least)+" to "+itoa(most)+".")
	}
	return n, nil
}

// Not returns the error of a value of another type than wanted.
func (v Value) Not(wanted string) error {
	names := map[byte]string{'{': "an object", '[': "an array", '"': "a string", 't': "a boolean", 'f': "a boolean", 'n': "null"}
	got, ok := names[v[0]]
	if !ok {
		got = "a number"
	}
	return Wrong("", "It must be "+wanted+", not "+got+".")
}

// Members yields the names, as JSON strings, and the values of an object.
func (v Value) Members() iter.Seq2[Value, Value] {
	return func(yield func(name, member Value) bool) {
		for i := afterSpace(v, 1); v[i] != '}'; {
			colon := v.end(i)
			start := afterSpace(v, afterSpace(v, colon)+len(":"))
			end := v.end(start)
			if !yield(v[i:colon], v[start:end]) {
				return
			}
			i = v.afterComma(end)
		}
	}
}

// Has reports whether v is an object with a member called name.
func (v Value) Has(name string) bool {
	if v[0] != '{' {
		return false
	}
	for member := range v.Members() {
		if text, err := member.Text(); err == nil && text == name {
			return true
		}
	}
	return false
}

// Elements yields the elements of an array.
func (v Value) Elements() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for i := afterSpace(v, 1); v[i] != ']'; {
			end := v.end(i)
			if !yield(v[i:end]) {
				return
			}
			i = v.afterComma(end)
		}
	}
}

// afterComma returns the index of the next member or element, or of the closing bracket, after one that ends at i.
func (v Value) afterComma(i int) int {
	i = afterSpace(v, i)
	if v[i] == ',' {
		i = afterSpace(v, i+1)
	}
	return i
}

// end returns the index after the value that starts at i and is inside v, however deeply it is nested.
func (v Value) end(i int) int {
	for depth := 0; ; {
		switch v[i] {
		case '{', '[':
			depth++
			i++
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\r', '\n':
			i++
		default: // a string, a number or a name
			i = endOfValue(v, i, 0)
		}
		if depth == 0 {
			return i
		}
	}
}
