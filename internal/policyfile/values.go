package policyfile

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// maxWordLen is the maximum length in bytes of a word that messages quote. All names and values are far shorter.
const maxWordLen = 256

// parsed reads a word into a field of T by parse, whose error is the mistake, and writes it by format. The zero value is
// left out.
func parsed[T any, V comparable](field func(*T) *V, parse func(string) (V, error), format func(V) string) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) {
			word, ok := readWord(f, n)
			if !ok {
				return
			}
			read, err := parse(word)
			if err != nil {
				f.Add(n, "%v", err)
			}
			*field(into) = read
		},
		formatted(field, format),
	}
}

// formatted returns a function that writes a field of T, and leaves the zero value out.
func formatted[T any, V comparable](field func(*T) *V, format func(V) string) func(*T) string {
	return func(from *T) string {
		if value := *field(from); value != *new(V) {
			return format(value)
		}
		return ""
	}
}

// word reads and writes one of some known words.
func word[T any, S ~string](field func(*T) *S) codec[T] {
	return parsed(field, func(word string) (S, error) { return S(word), nil }, text)
}

func text[S ~string](word S) string { return string(word) }

// name reads and writes a name of the author's choice.
func name[T any](field func(*T) *string) codec[T] {
	return codec[T]{word(field).read, formatted(field, scalar)}
}

func readWord(f *yamlfile.File, n *yamlfile.Node) (string, bool) {
	switch {
	case !expectText(f, n):
	case n.Text == "":
		f.Add(n, "is empty: give it a value or remove it")
	case len(n.Text) > maxWordLen:
		f.Add(n, "%d bytes long: nothing that may stand here is longer than %d", len(n.Text), maxWordLen)
	default:
		return n.Text, true
	}
	return "", false
}

func expectText(f *yamlfile.File, n *yamlfile.Node) bool {
	cure := "write one word"
	if n.Kind == yamlfile.Number || n.Kind == yamlfile.Bool {
		cure = "put " + n.Text + " in quotes if it is meant as text"
	}
	return f.Expect(n, yamlfile.Text, cure)
}

func readDescription(f *yamlfile.File, n *yamlfile.Node, policy *policy.Policy) {
	if expectText(f, n) {
		policy.Description = n.Text
	}
}

// duration reads and writes a time with its unit.
func duration[T any](field func(*T) *time.Duration) codec[T] {
	return withUnit(field, policy.ParseWindow, policy.FormatWindow, "a duration such as 30s, 15m, 1h or 7d")
}

// percentage reads and writes a whole percentage.
func percentage[T any](field func(*T) *int) codec[T] {
	format := func(percent int) string { return strconv.Itoa(percent) + "%" }
	return withUnit(field, policy.ParseShare, format, "a percentage such as 20%")
}

// withUnit is parsed for a word with a unit. A number without one is a mistake, and example the hint.
func withUnit[T any, V comparable](
	field func(*T) *V, parse func(string) (V, error), format func(V) string, example string,
) codec[T] {
	c := parsed(field, parse, format)
	read := c.read
	c.read = func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		if n.Kind == yamlfile.Number {
			f.Add(n, "%.32s has no unit: write it as %s", n.Text, example)
			return
		}
		read(f, n, into)
	}
	return c
}

// readWindow reads the name of a calendar, or a time.
func readWindow(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	if calendar := policy.Calendar(n.Text); n.Kind == yamlfile.Text && calendar.Length() > 0 {
		l.Calendar, l.Window = calendar, calendar.Length()
		return
	}
	duration(func(l *policy.Limit) *time.Duration { return &l.Window }).read(f, n, l)
}

// writeWindow writes the window of limits that are concurrent, or of those that are not.
func writeWindow(concurrent bool) func(*policy.Limit) string {
	return func(l *policy.Limit) string {
		if l.IsConcurrent() != concurrent {
			return ""
		}
		return l.WindowName()
	}
}

var (
	digits     = regexp.MustCompile(`^-?[0-9]+$`)
	wholeUnits = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// readUnits reads a whole number in plain digits. Numbers that YAML would read in another base, or round, are refused.
func readUnits(f *yamlfile.File, n *yamlfile.Node) (units int64, ok bool) {
	isScalar := n.Kind == yamlfile.Number || n.Kind == yamlfile.Text && !n.Quoted // 1e3 is text to YAML
	switch {
	case n.Kind == yamlfile.Text && n.Quoted && digits.MatchString(n.Text):
		f.Add(n, "text where a number belongs: write %.32s without quotes", n.Text)
		return 0, false
	case !isScalar:
		f.Expect(n, yamlfile.Number, "write plain digits such as 1000")
		return 0, false
	case !wholeUnits.MatchString(n.Text):
		f.Add(n, "%.32q is not a whole number: write plain digits such as 1000", n.Text)
		return 0, false
	}
	units, err := strconv.ParseInt(n.Text, 10, 64)
	if err != nil {
		f.Add(n, "%.32s is out of range: use 0 (denies always) to %d", n.Text, int64(policy.MaxLimit))
		return 0, false
	}
	return units, true
}

// units reads and writes a whole number. 0 is left out.
func units[T any](field func(*T) *int64) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) {
			if read, ok := readUnits(f, n); ok {
				*field(into) = read
			}
		},
		formatted(field, func(units int64) string { return strconv.FormatInt(units, 10) }),
	}
}

// number is units for a number that is cut to 32 bits: all ranges are smaller.
func number[T any](field func(*T) *int) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) {
			read, _ := readUnits(f, n)
			*field(into) = int(max(math.MinInt32, min(read, math.MaxInt32)))
		},
		formatted(field, strconv.Itoa),
	}
}

// yes reads and writes true or false. False is left out.
func yes[T any](field func(*T) *bool) codec[T] {
	return codec[T]{
		func(f *yamlfile.File, n *yamlfile.Node, into *T) {
			if f.Expect(n, yamlfile.Bool, "write true or false, without quotes") {
				*field(into) = strings.EqualFold(n.Text, "true")
			}
		},
		formatted(field, strconv.FormatBool),
	}
}

// nonzero returns of(field), except that it refuses 0, which stands for a default or for none if the member is left out.
// others is the permitted range.
func nonzero[T any, V comparable](of func(func(*T) *V) codec[T], field func(*T) *V, others string) codec[T] {
	c := of(field)
	read := c.read
	c.read = func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		read(f, n, into)
		if *field(into) == *new(V) && !f.Wrong(n.Path) {
			f.Add(n, "%s is out of range: use %s", n.Text, others)
		}
	}
	return c
}

// blockTimes is the range of the times of blocks.
var blockTimes = policy.FormatWindow(policy.MinWindow) + " to " + policy.FormatWindow(policy.MaxWindow) + ", or remove it"

// upTo returns the text of a range from 1.
func upTo(most int64) string { return "1 to " + strconv.FormatInt(most, 10) }
