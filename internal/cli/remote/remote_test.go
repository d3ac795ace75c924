package remote

import (
	"math"
	"strings"
	"testing"
)

func TestDuration(t *testing.T) {
	for ms, want := range map[int64]string{
		1: "1ms", 999: "999ms", 1000: "1s", 1001: "2s", 59_000: "59s", 59_001: "1m", 3_599_001: "1h", 3_661_000: "1h1m1s",
		90_000_000: "1d1h", 31 * 86_400_000: "31d", 2_678_399_000: "30d23h59m59s", math.MaxInt64: "106751991167d7h12m56s",
	} {
		if got := Duration(ms); got != want {
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
		if got := Printable(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
