package settings

import (
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

func TestHashKey(t *testing.T) {
	const hex = "00112233445566778899aabbccddeeff"
	for _, test := range []struct {
		name, text string
		id         string // of the key; empty: there is an error
		bytes      int
		want       string // in the error
	}{
		{"hex", "2026-01:" + hex + "\n", "2026-01", 16, ""},
		{"base64", "# ours\n\nk : ABEiM0RVZneImaq7zN3u/w==\r\n", "k", 16, ""},
		{"base64 without padding", "k:ABEiM0RVZneImaq7zN3u/w", "k", 16, ""},
		{"nothing", "# soon\n", "", 0, "there is no key in it"},
		{"no colon", hex, "", 0, "line 1: no colon: write id:key"},
		{"no id", ":" + hex, "", 0, "line 1: the id before the colon is not valid"},
		{"a short key", "\nk:0011\n", "", 0, "line 2: key k has 2 bytes: at least 16 are needed"},
		{"a word", "k:secret words!", "", 0, "neither hex nor standard base64"},
		{"two of a name", "a:" + hex + "\n\na:" + hex, "", 0, "line 3: a second key called a"},
		{"four", "a:" + hex + "\nb:" + hex + "\nc:" + hex + "\nd:" + hex, "", 0, "line 4: more than 3 keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := parseHashKeys([]byte(test.text))
			if test.id == "" {
				if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret words") {
					t.Errorf("error is %v, want %q in it and nothing of the key", err, test.want)
				}
				return
			}
			if err != nil || keys[0].ID != test.id || len(keys[0].Secret) != test.bytes || keys[0].Secret[1] != 0x11 {
				t.Errorf("keys are %+v, %v; want %d bytes called %q", keys, err, test.bytes, test.id)
			}
		})
	}
}

// The first key of the file is written with, the others are read as well.
func TestHashKeysInTheirOrder(t *testing.T) {
	const hex = "00112233445566778899aabbccddeeff"
	all, err := parseHashKeys([]byte("new:" + hex + "\nold:" + hex))
	if err != nil {
		t.Fatal(err)
	}
	first, others := keys.KeyersOf("n", all)
	if first.Secret.ID != "new" || len(others) != 1 || others[0].Secret.ID != "old" || others[0].Namespace != "n" {
		t.Errorf("written with %+v, read with %+v", first, others)
	}
	if first, others := keys.KeyersOf("n", nil); first.Secret != nil || others != nil {
		t.Errorf("without keys: %+v and %+v", first, others)
	}
}
