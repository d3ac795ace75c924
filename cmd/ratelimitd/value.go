package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/origin"
)

// value is a flag that parse makes a T of, so that what is wrong is refused where
// it is given, and told with where that was. It implements pflag.Value.
type value[T any] struct {
	into  *T
	text  string
	kind  string
	parse func(string) (T, error)
}

// String returns the text that was set last.
func (v *value[T]) String() string { return v.text }

// Type returns the word that the help shows for the value.
func (v *value[T]) Type() string { return v.kind }

// Set parses text. What was set before stays when that fails.
func (v *value[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.into, v.text = parsed, text
	return nil
}

// parsed adds a flag. A default that parse refuses leaves *into as it is.
func parsed[T any](flags *pflag.FlagSet, into *T, name, text, kind, usage string, parse func(string) (T, error)) {
	flags.Var(newValue(into, text, kind, parse), name, usage)
}

func newValue[T any](into *T, text, kind string, parse func(string) (T, error)) *value[T] {
	v := &value[T]{into: into, kind: kind, parse: parse}
	_ = v.Set(text)
	return v
}

// oneOf parses one of some words.
func oneOf(words ...string) func(string) (string, error) {
	return func(text string) (string, error) {
		if slices.Contains(words, text) {
			return text, nil
		}
		return "", fmt.Errorf("%q is not known: use one of %s", text, strings.Join(words, ", "))
	}
}

// between parses a duration of whole milliseconds.
func between(least, most time.Duration) func(string) (time.Duration, error) {
	return func(text string) (time.Duration, error) {
		d, err := time.ParseDuration(text)
		if err != nil || d < least || d > most || d%time.Millisecond != 0 {
			return 0, fmt.Errorf("%q is no duration from %v to %v in whole milliseconds", text, least, most)
		}
		return d, nil
	}
}

func atLeastOne(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%q is no whole number of at least 1", text)
	}
	return n, nil
}

// address parses host:port, either of which may be empty.
func address(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return "", fmt.Errorf("%q is no address: use host:port such as 127.0.0.1:8080, :8080, or port 0 for any free one", text)
	}
	return text, nil
}

// sources parses what identifies, with commas between.
func sources(text string) (all []origin.Source, err error) {
	for part := range strings.SplitSeq(text, ",") {
		source, err := origin.ParseSource(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	return all, nil
}

func logLevel(text string) (slog.Level, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return 0, fmt.Errorf("%q is no level: use one of debug, info, warn, error", text)
	}
	return level, nil
}

// hostList is a list of host[:port]: a flag that may be repeated and may hold
// commas. It implements pflag.SliceValue.
type hostList struct {
	hosts []string
	given bool // by somebody: the default is gone
}

// String returns the hosts with commas between.
func (l *hostList) String() string { return strings.Join(l.hosts, ",") }

// Type returns the word that the help shows for the value.
func (*hostList) Type() string { return "hosts" }

// Set adds the hosts in text, in place of the default.
func (l *hostList) Set(text string) error {
	hosts := strings.Split(text, ",")
	if l.given {
		hosts = append(slices.Clone(l.hosts), hosts...)
	}
	return l.Replace(hosts)
}

// Append adds one host, in place of the default.
func (l *hostList) Append(host string) error { return l.Set(host) }

// GetSlice returns the hosts.
func (l *hostList) GetSlice() []string { return l.hosts }

// Replace puts hosts in place of all others.
func (l *hostList) Replace(hosts []string) error {
	trimmed := make([]string, len(hosts))
	for i, h := range hosts {
		trimmed[i] = strings.TrimSpace(h)
		if strings.Contains(trimmed[i], "@") { // what stands before it may be a password
			return errors.New("a host has no @: use host or host:port, and --cassandra-username for who asks")
		}
		if trimmed[i] == "" || strings.ContainsAny(trimmed[i], " /") {
			return fmt.Errorf("%q is no host: use host or host:port, with commas between several", h)
		}
	}
	if len(trimmed) == 0 {
		return fmt.Errorf("there are no hosts: give at least one")
	}
	l.hosts, l.given = trimmed, true
	return nil
}
