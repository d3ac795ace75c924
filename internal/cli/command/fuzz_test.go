package command

import (
	"strings"
	"testing"
	"time"
)

// FuzzValues parses values of flags: one that is taken prints as a text that is taken.
func FuzzValues(f *testing.F) {
	for _, seed := range []string{
		"127.0.0.1:0", ":8080", "host:http", "1ms", "1m0.5s", "a:80", "7",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if d, err := Between(0, time.Minute)(text); err == nil {
			if same, err := Between(0, time.Minute)(d.String()); err != nil || same != d {
				t.Fatalf("%q: %v, and then %v, %v", text, d, same, err)
			}
		}
		if a, err := Address(text); err == nil && a != text {
			t.Fatalf("%q: %q", text, a)
		}
		if n, err := AtLeastOne(text); err == nil && n < 1 {
			t.Fatalf("%q: %d", text, n)
		}
	})
}

// FuzzInput reads the one line that standard input has.
func FuzzInput(f *testing.F) {
	for _, seed := range []string{"+4915112345678\n", "a\r\n", "a\nb\n", "", "\n", "\x00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		line, err := lineIn(text, "identifier")
		if err != nil {
			if len(text) > 20 && strings.Contains(err.Error(), string(text)) {
				t.Fatalf("the error tells what was given: %v", err)
			}
			return
		}
		if same, err := lineIn([]byte(line), "identifier"); err != nil || same != line || len(line) == 0 || len(line) > maxInputBytes {
			t.Fatalf("%q: %q, and then %q, %v", text, line, same, err)
		}
	})
}
