package encode

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTextsAreQuoted holds that texts with any byte at any place, once and twice, are quoted.
func TestTextsAreQuoted(t *testing.T) {
	if got := string(appendString(nil, "")); got != `""` {
		t.Errorf("no text became %s", got)
	}
	for length := range 20 {
		for at := range length {
			for c := range 256 {
				for _, odd := range []string{string([]byte{byte(c)}), string([]byte{byte(c), byte(c)})} {
					text := strings.Repeat("!", at) + odd + strings.Repeat("~", length-at-1)
					quoted := appendString(nil, text)
					var back string
					err := json.Unmarshal(quoted, &back)
					if err != nil || !utf8.Valid(quoted) || back != strings.ToValidUTF8(text, strings.Repeat("\uFFFD", len(odd))) {
						t.Fatalf("%q became %s, which is %q: %v", text, quoted, back, err)
					}
				}
			}
		}
	}
}
