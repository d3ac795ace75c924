package broken

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

// files has the builds of each topic.
//
//go:embed builds/*.txt
var files embed.FS

// topics are the names of files, in the order of their builds in reports.
var topics = []string{
	"counting", "timing", "answering", "counters", "resets", "totals", "local", "comparing", "once", "keys", "overrides",
	"owners", "members", "prepared", "numbers", "shadows", "versions", "confirms",
}

// Builds returns all builds. The error names the file and the build that can't be read.
func Builds() (all []Build, err error) {
	for _, topic := range topics {
		name := "builds/" + topic + ".txt"
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		parts := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n=== ")
		for _, part := range parts[1:] { // the first part is a comment
			b, err := parse(part)
			if err != nil {
				return nil, fmt.Errorf("internal/broken/%s: %q: %w", name, b.Name, err)
			}
			all = append(all, b)
		}
	}
	return all, nil
}

// parse reads a build:
//
//	what is broken
//	broke: the promise that no longer holds
//	rule: 4
//	test: a test that catches it (repeatable)
//	finds: 1500
//	vital
//	--- path/of/a/file.go
//	the old text, of one or more lines
//	+++
//	the new text, which may be empty. More edits may follow
func parse(text string) (b Build, err error) {
	parts := strings.Split(text, "\n--- ")
	about := strings.Split(parts[0], "\n")
	b.Name = about[0]
	for _, line := range about[1:] {
		switch key, value, _ := strings.Cut(line, ": "); key {
		case "broke":
			b.Broke = value
		case "rule":
			if b.Rule, err = strconv.Atoi(value); err != nil || b.Rule < 1 || b.Rule > Rules {
				return b, fmt.Errorf("rule: %q: use 1 to %d", value, Rules)
			}
		case "test":
			b.Tests = append(b.Tests, value)
		case "finds":
			if b.Finds, err = strconv.Atoi(value); err != nil {
				return b, fmt.Errorf("finds: %w", err)
			}
		case "vital":
			b.Vital = true
		default:
			return b, fmt.Errorf("%q: use broke, rule, test, finds or vital", line)
		}
	}
	for _, part := range parts[1:] {
		file, change, _ := strings.Cut(part, "\n")
		was, is, found := strings.Cut(change, "\n+++")
		if !found {
			return b, fmt.Errorf("%s: there is no line +++ between the old text and the new one", file)
		}
		b.Edits = append(b.Edits, Edit{File: file, Old: was, New: strings.TrimPrefix(is, "\n")})
	}
	return b, nil
}
