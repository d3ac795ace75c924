package main

import (
	"errors"
	"regexp"
	"strings"
)

// Phone is a number in its canonical form: a plus and
// 7 to 15 digits (ITU-T E.164). It prints as a placeholder, so that a careless
// log line does not reveal it.
type Phone string

// String returns the same text for every number.
func (Phone) String() string { return "(a phone number)" }

var (
	e164       = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	separators = strings.NewReplacer(" ", "", "-", "", ".", "", "(", "", ")", "", "/", "")
)

var errPhone = errors.New("phone: write it with its country, such as +44 7700 900123")

// ParsePhone reads a number as people write it, for the gateway. ratelimitd does not need this:
// its policy normalizes numbers.
func ParsePhone(text string) (Phone, error) {
	text = separators.Replace(strings.TrimSpace(text))
	if rest, found := strings.CutPrefix(text, "00"); found {
		text = "+" + rest
	}
	if !e164.MatchString(text) {
		return "", errPhone
	}
	return Phone(text), nil
}
