package main

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
)

// The documents of testdata/answers.txt, each after a line with the verb, the
// status and what it is about, as tables and JSON.
func TestPrintDecision(t *testing.T) {
	answers, err := os.ReadFile("testdata/answers.txt")
	if err != nil {
		t.Fatal(err)
	}
	var printed strings.Builder
	for _, asked := range strings.Split(strings.TrimSpace(string(answers)), "\n\n") {
		head, body, _ := strings.Cut(asked, "\n")
		verb, rest, _ := strings.Cut(head, " ")
		status, about, _ := strings.Cut(rest, " ")
		code, err := strconv.Atoi(status)
		if err != nil {
			t.Fatal(err)
		}
		s := pretend(t, reply{status: code, body: body})
		fmt.Fprintf(&printed, "== %s: %s\n", verb, about)
		for _, format := range []string{outputTable, outputJSON} {
			code, stdout, stderr := execute(t, nil, verb, "p", "i", "--server", s.URL, "-o", format)
			fmt.Fprintf(&printed, "%s%s=> %d\n", stdout, stderr, code)
		}
	}
	golden(t, "answers.golden", printed.String())
}

func TestDuration(t *testing.T) {
	for ms, want := range map[int64]string{
		1: "1ms", 999: "999ms", 1000: "1s", 1001: "2s", 59_000: "59s", 59_001: "1m", 3_599_001: "1h", 3_661_000: "1h1m1s",
		90_000_000: "1d1h", 31 * 86_400_000: "31d", 2_678_399_000: "30d23h59m59s", math.MaxInt64: "106751991167d7h12m56s",
	} {
		if got := duration(ms); got != want {
			t.Errorf("%d ms: %s, want %s", ms, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for text, want := range map[string]string{
		"per-hour":                         "per-hour",
		"größer als 10":                    "größer als 10",
		"a\x1b[31mb\nc\td":                 "a\ufffd[31mb\ufffdc\ufffdd",
		"\u009b31m\u202e":                  "\ufffd31m\ufffd",
		strings.Repeat("é", maxShownBytes): strings.Repeat("é", maxShownBytes/2) + "…",
	} {
		if got := printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
