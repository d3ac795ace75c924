// Package jsonscan reads a JSON text from front to back without reflection, for bodies that a busy process reads all
// the time. For an answer, encoding/json takes six times as long and makes 16 allocations instead of two
// (BenchmarkReadAnswer).
//
// It knows no member of the bodies.
package jsonscan

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// ErrUnreadable is the error of a text that does not have the expected form. It repeats nothing of the text.
var ErrUnreadable = errors.New("it cannot be read")

// Scanner reads one text. The first error is kept, and ends every loop; values read after it are empty. Make one with
// New.
type Scanner struct {
	b     []byte
	i     int
	err   error
	names Names
}

// Names has strings that recur, such as names of limits, so that each is allocated once. It is not safe for concurrent
// use; nil keeps none.
type Names map[string]string

// maxNames bounds Names: a policy has up to 16 limits, and a process uses a few policies.
const maxNames = 1024

// New returns a Scanner of text.
func New(text []byte, names Names) *Scanner { return &Scanner{b: text, names: names} }

// Err returns the first error, nil if there is none.
func (s *Scanner) Err() error { return s.err }

// Fail notes that the text does not have the form that the caller expects.
func (s *Scanner) Fail() { s.err = ErrUnreadable }

// peek returns the next byte that is not a space, 0 at the end or after an error.
func (s *Scanner) peek() byte {
	for s.err == nil && s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// expect reads c, which must be next.
func (s *Scanner) expect(c byte) {
	if s.peek() != c {
		s.Fail()
		return
	}
	s.i++
}

// next moves to the next element of the array or object that end closes, and reports whether there is one. first says
// that none was read yet.
func (s *Scanner) next(end byte, first bool) bool {
	c := s.peek()
	if c == end {
		s.i++
		return false
	}
	if !first {
		s.expect(',')
		c = s.peek()
	}
	if c == 0 || c == end {
		s.Fail()
	}
	return s.err == nil
}

// Object calls member with the name of each member of the next object, to read its value.
func (s *Scanner) Object(member func(name []byte)) {
	s.expect('{')
	for first := true; s.err == nil && s.next('}', first); first = false {
		name := s.Text()
		s.expect(':')
		if s.err == nil {
			member(name)
		}
	}
}

// Array calls element to read each element of the next array, and returns their number.
func (s *Scanner) Array(element func()) (n int) {
	s.expect('[')
	for ; s.err == nil && s.next(']', n == 0); n++ {
		element()
	}
	return n
}

// Null reads null, and reports whether it was next.
func (s *Scanner) Null() bool { return s.literal("null") }

// Text returns the next value, a string. It may share the memory of the text.
func (s *Scanner) Text() []byte {
	s.expect('"')
	if s.err != nil {
		return nil
	}
	for i := s.i; i < len(s.b); i++ {
		switch c := s.b[i]; {
		case c == '"':
			text := s.b[s.i:i]
			s.i = i + 1
			return text
		case c == '\\' || c < ' ' || c >= utf8.RuneSelf:
			return s.rareText(s.i - 1)
		}
	}
	s.Fail()
	return nil
}

// rareText reads the string that starts at from and has more than plain ASCII.
func (s *Scanner) rareText(from int) []byte {
	for i := from + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			var text string
			if json.Unmarshal(s.b[from:i+1], &text) != nil {
				s.Fail()
			}
			s.i = i + 1
			return []byte(text)
		}
	}
	s.Fail()
	return nil
}

// Name returns the next value, a string, which is allocated once if it recurs.
func (s *Scanner) Name() string {
	text := s.Text()
	if known, ok := s.names[string(text)]; ok {
		return known
	}
	made := string(text)
	if len(s.names) < maxNames && s.names != nil {
		s.names[made] = made
	}
	return made
}

// MaxDigits is the maximum number of digits in an integer: so many fit an int64.
const MaxDigits = 18

// Integer returns the next value, an integer: no number of the service has a fraction.
func (s *Scanner) Integer() (n int64) {
	negative := s.peek() == '-'
	if negative {
		s.i++
	}
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' && s.i-start <= MaxDigits {
		n = 10*n + int64(s.b[s.i]-'0')
		s.i++
	}
	switch digits := s.i - start; {
	case digits == 0 || digits > MaxDigits || digits > 1 && s.b[start] == '0':
		s.Fail()
	case s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|' ' == 'e'):
		s.Fail()
	}
	if negative {
		return -n
	}
	return n
}

// Boolean returns the next value, a boolean.
func (s *Scanner) Boolean() bool {
	if s.literal("true") {
		return true
	}
	if !s.literal("false") {
		s.Fail()
	}
	return false
}

// literal reads word if it is next, and reports whether it was.
func (s *Scanner) literal(word string) bool {
	if s.peek() != word[0] || !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

// Skip skips the next value of any kind: later services may send more members.
func (s *Scanner) Skip() {
	if s.peek() == 0 {
		s.Fail()
		return
	}
	from := s.i
	for depth := 0; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // the end of the enclosing value
				s.valid(from)
				return
			}
			depth--
		case ',':
			if depth == 0 {
				s.valid(from)
				return
			}
		case '"':
			if s.Text(); s.err != nil {
				return
			}
			s.i--
		}
	}
	s.Fail() // a value is in an object
}

// valid fails unless the bytes read since from are JSON.
func (s *Scanner) valid(from int) {
	if !json.Valid(s.b[from:s.i]) {
		s.Fail()
	}
}

// End fails unless the text ends here.
func (s *Scanner) End() {
	if s.peek() != 0 || s.i < len(s.b) {
		s.Fail()
	}
}
