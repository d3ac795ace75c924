package policyfile

import (
	"math"
	"regexp"
	"strconv"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// maxWordLen is the maximum length in bytes of a word that messages quote. All names and values are far shorter.
const maxWordLen = 256

// word reads text that may not be empty into a field of T.
func word[T any, S ~string](field func(*T) *S) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		if text, ok := readWord(f, n); ok {
			*field(into) = S(text)
		}
	}
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

// parsed reads a word into a field of T by parse, whose error is the mistake.
func parsed[T, V any](field func(*T) *V, parse func(string) (V, error)) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		text, ok := readWord(f, n)
		if !ok {
			return
		}
		read, err := parse(text)
		if err != nil {
			f.Add(n, "%v", err)
		}
		*field(into) = read
	}
}

// duration reads a time with its unit into a field of T.
func duration[T any](field func(*T) *time.Duration) reader[T] {
	return withUnit(field, policy.ParseWindow, "a duration such as 30s, 15m, 1h or 7d")
}

// percentage reads a whole percentage into a field of T.
func percentage[T any](field func(*T) *int) reader[T] {
	return withUnit(field, policy.ParseShare, "a percentage such as 20%")
}

// withUnit is parsed for a word with a unit. A number without one is a mistake, and example the hint.
func withUnit[T, V any](field func(*T) *V, parse func(string) (V, error), example string) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		if n.Kind == yamlfile.Number {
			f.Add(n, "%.32s has no unit: write it as %s", n.Text, example)
			return
		}
		parsed(field, parse)(f, n, into)
	}
}

// readWindow reads the name of a calendar, or a time.
func readWindow(f *yamlfile.File, n *yamlfile.Node, l *policy.Limit) {
	if calendar := policy.Calendar(n.Text); n.Kind == yamlfile.Text && calendar.Length() > 0 {
		l.Calendar, l.Window = calendar, calendar.Length()
		return
	}
	duration(func(l *policy.Limit) *time.Duration { return &l.Window })(f, n, l)
}

var (
	digits     = regexp.MustCompile(`^-?[0-9]+$`)
	wholeUnits = regexp.MustCompile(`^-?(0|[1-9][0-9]*)$`)
)

// units reads a whole number in plain digits into a field of T. Numbers that YAML
// would read in another base, or round, are refused.
func units[T any](field func(*T) *int64) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		if n.Kind == yamlfile.Text && n.Quoted && digits.MatchString(n.Text) {
			f.Add(n, "text where a number belongs: write %.32s without quotes", n.Text)
			return
		}
		isScalar := n.Kind == yamlfile.Number || n.Kind == yamlfile.Text && !n.Quoted // 1e3 is text to YAML
		if !isScalar {
			f.Expect(n, yamlfile.Number, "write plain digits such as 1000")
			return
		}
		if !wholeUnits.MatchString(n.Text) {
			f.Add(n, "%.32q is not a whole number: write plain digits such as 1000", n.Text)
			return
		}
		value, err := strconv.ParseInt(n.Text, 10, 64)
		if err != nil {
			f.Add(n, "%.32s is out of range: use 0 (denies always) to %d", n.Text, int64(policy.MaxLimit))
			return
		}
		*field(into) = value
	}
}

// number reads a whole number into a field of T, cut to 32 bits: all ranges are smaller.
func number[T any](field func(*T) *int) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		var read int64
		units(func(*T) *int64 { return &read })(f, n, into)
		*field(into) = int(max(math.MinInt32, min(read, math.MaxInt32)))
	}
}

// nonzero reads a field of T by read, and refuses 0, which stands for a default or for none if the member is left out.
// others is the permitted range.
func nonzero[T any, V comparable](read func(func(*T) *V) reader[T], field func(*T) *V, others string) reader[T] {
	return func(f *yamlfile.File, n *yamlfile.Node, into *T) {
		read(field)(f, n, into)
		if *field(into) == *new(V) && !f.Wrong(n.Path) {
			f.Add(n, "%s is out of range: use %s", n.Text, others)
		}
	}
}

// blockTimes is the range of the times of blocks.
var blockTimes = policy.FormatWindow(policy.MinWindow) + " to " + policy.FormatWindow(policy.MaxWindow) + ", or remove it"

// upTo returns the text of a range from 1.
func upTo(most int64) string { return "1 to " + strconv.FormatInt(most, 10) }
