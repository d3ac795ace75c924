package command

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// value is a flag whose text is parsed to a T, so that errors name the flag or variable. It implements pflag.Value.
type value[T any] struct {
	into  *T
	text  string
	kind  string
	parse func(string) (T, error)
}

// String returns the text that was set last.
func (v *value[T]) String() string { return v.text }

// Type returns the name of the value in the help.
func (v *value[T]) Type() string { return v.kind }

// Set parses text. It keeps the earlier value if that fails.
func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.into, v.text = parsed, text
	return nil
}

// Var adds a flag whose text is parsed to a T. text is its default, and kind the name of its value in the help. A
// default that parse refuses leaves *into unchanged.
func Var[T any](flags *pflag.FlagSet, into *T, name, text, kind, usage string, parse func(string) (T, error)) {
	VarP(flags, into, name, "", text, kind, usage, parse)
}

// VarP is Var for a flag that also has a one-letter name.
func VarP[T any](flags *pflag.FlagSet, into *T, name, letter, text, kind, usage string, parse func(string) (T, error)) {
	v := &value[T]{into: into, kind: kind, parse: parse}
	_ = v.Set(text)
	flags.VarP(v, name, letter, usage)
}

// OneOf parses one of some words.
func OneOf(words ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if slices.Contains(words, text) {
			return text, nil
		}
		return "", fmt.Errorf("%q is not known: use one of %s", text, strings.Join(words, ", "))
	}
}

// Between parses a duration of whole milliseconds.
func Between(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most || d%time.Millisecond != 0 {
			return 0, fmt.Errorf("%q is not a duration from %v to %v in whole milliseconds", text, least, most)
		}
		return d, nil
	}
}

// AtLeastOne parses a whole number of at least 1.
func AtLeastOne(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is not a whole number of at least 1", text)
	}
	return n, nil
}

// Address parses host:port, either of which may be empty.
func Address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is not an address: use host:port such as 127.0.0.1:8080, :8080, or port 0 for any free one", text)
	}
	return text, nil
}
