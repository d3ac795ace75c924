package decode

import (
	"encoding/json"
	"strings"
	"testing"
)

// notations are JSON values, and texts that are nearly JSON.
var notations = []string{
	`{}`, `[]`, `{"a":[{"b":{}}],"c":"","d":null}`, `[ 1 , "a" ,true,false , null ]`, `{ "a" : 1 , "b" : 2 }`, `""`,
	`"a\"\\\/\b\f\n\r\t"`,
	`"\u00e9\uD83D\uDE00\uabCD"`, `0`, `-0`, `10`, `-1.50`, `1e9`, `1E+09`, `0.1e-1`, `true`, `false`, `null`, "\"\x7f\xc3\xa9\"",
	``, `{`, `[`, `"`, `"a`, `"\`, `"\u`, `"\u00e`, `"\u00eg"`, `"\x"`, "\"\n\"", "\"\x00\"",
	`01`, `-`, `--1`, `+1`, `1.`, `.1`, `1e`, `1e+`, `0x1`, `tru`, `nul`, `True`, `nulll`,
	`[1,]`, `[,1]`, `[1 2]`, `[1;2]`,
	`{"a"}`, `{"a":}`, `{"a" 1}`, `{a:1}`, `{1:1}`, `{"a":1,}`, `{,}`, `{"a":1]`, `[1}`, `{"a":1 "b":2}`, `[1]]`, `{}{}`, `1 `, ` 1`,
}

// FuzzWellFormed holds that isWellFormed and encoding/json agree, except about texts that are nested too deeply or have
// spaces around them.
func FuzzWellFormed(f *testing.F) {
	for _, text := range notations {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, want := isWellFormed(Value(text)), json.Valid(text)
		deep := strings.Count(string(text), "{")+strings.Count(string(text), "[") > maxDepth
		padded := strings.Trim(string(text), " \t\r\n") != string(text)
		if got != want && (got || !deep && !padded) {
			t.Fatalf("%q: %v, and encoding/json says %v", text, got, want)
		}
	})
}

// TestDeeplyNested holds that JSON that is nested too deeply for isWellFormed is accepted.
func TestDeeplyNested(t *testing.T) {
	for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		if got := isWellFormed(Value(text)); got != want {
			t.Errorf("depth %d: %v, want %v", depth, got, want)
		}
		if v, err := Parse([]byte(text)); err != nil || string(v) != text {
			t.Errorf("depth %d: %v", depth, err)
		}
	}
}
