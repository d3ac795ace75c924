package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// errNonsense is a body that is no answer of ratelimitd's. It tells nothing of the body.
var errNonsense = errors.New("it cannot be read")

// scanner reads a JSON text from front to back. Its first error is kept, and ends every loop.
type scanner struct {
	b   []byte
	i   int
	err error
	// names holds the strings that come again and again, such as those of limits, so that they
	// are made once.
	names map[string]string
}

// maxNames bounds names: a policy has up to 16 limits, and a process asks for a few policies.
const maxNames = 1024

func (s *scanner) fail() { s.err = errNonsense }

// peek returns the next byte that is no space, 0 at the end or after an error.
func (s *scanner) peek() byte {
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

// expect goes past c, which must be next.
func (s *scanner) expect(c byte) {
	if s.peek() != c {
		s.fail()
		return
	}
	s.i++
}

// next goes to the next element of what end closes, and reports whether there is one. first
// is whether none has come yet.
func (s *scanner) next(end byte, first bool) bool {
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
		s.fail()
	}
	return s.err == nil
}

// object has member read each value of the object that is next, by its name.
func (s *scanner) object(member func(name []byte)) {
	s.expect('{')
	for first := true; s.err == nil && s.next('}', first); first = false {
		name := s.text()
		s.expect(':')
		if s.err == nil {
			member(name)
		}
	}
}

// text returns what the string that is next stands for. It may be a part of s.b.
func (s *scanner) text() []byte {
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
	s.fail()
	return nil
}

// rareText reads the string that starts at from and is more than plain ASCII.
func (s *scanner) rareText(from int) []byte {
	for i := from + 1; i < len(s.b); i++ {
		switch s.b[i] {
		case '\\':
			i++
		case '"':
			var text string
			if json.Unmarshal(s.b[from:i+1], &text) != nil {
				s.fail()
			}
			s.i = i + 1
			return []byte(text)
		}
	}
	s.fail()
	return nil
}

// name returns the string that is next, made once if it comes again.
func (s *scanner) name() string {
	text := s.text()
	if known, ok := s.names[string(text)]; ok {
		return known
	}
	made := string(text)
	if len(s.names) < maxNames && s.names != nil {
		s.names[made] = made
	}
	return made
}

// maxDigits keeps an integer within an int64.
const maxDigits = 18

// integer returns the integer that is next: no number of the service has a fraction.
func (s *scanner) integer() (n int64) {
	negative := s.peek() == '-'
	if negative {
		s.i++
	}
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' && s.i-start <= maxDigits {
		n = 10*n + int64(s.b[s.i]-'0')
		s.i++
	}
	switch digits := s.i - start; {
	case digits == 0 || digits > maxDigits || digits > 1 && s.b[start] == '0':
		s.fail()
	case s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|' ' == 'e'):
		s.fail()
	}
	if negative {
		return -n
	}
	return n
}

// boolean returns the boolean that is next.
func (s *scanner) boolean() bool {
	if s.literal("true") {
		return true
	}
	if !s.literal("false") {
		s.fail()
	}
	return false
}

// literal goes past word if it is next.
func (s *scanner) literal(word string) bool {
	if s.peek() != word[0] || !bytes.HasPrefix(s.b[s.i:], []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

// skip goes past the value that is next, whatever it is: later services may say more.
func (s *scanner) skip() {
	if s.peek() == 0 {
		s.fail()
		return
	}
	from := s.i
	for depth := 0; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 { // of what the value is in
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
			if s.text(); s.err != nil {
				return
			}
			s.i--
		}
	}
	s.fail() // a value is in an object
}

// valid makes sure that what is read since from is JSON.
func (s *scanner) valid(from int) {
	if !json.Valid(s.b[from:s.i]) {
		s.fail()
	}
}

// end makes sure that nothing follows.
func (s *scanner) end() {
	if s.peek() != 0 || s.i < len(s.b) {
		s.fail()
	}
}
