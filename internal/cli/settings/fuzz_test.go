package settings

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// FuzzHashKeys reads key files: what it takes is long enough, has ids of its own, and is
// read back the same; a mistake tells nothing of a key.
func FuzzHashKeys(f *testing.F) {
	for _, seed := range []string{
		"2026-01:MDEyMzQ1Njc4OWFiY2RlZg==\n", "a: 000102030405060708090a0b0c0d0e0f\r\n# b\n\nb:000102030405060708090A0B0C0D0E0F",
		"no colon", "a:short", "a:!!!!", ":x", "\xff:\xff", "a:MDEyMzQ1Njc4OWFiY2RlZg\na:MDEyMzQ1Njc4OWFiY2RlZg",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		all, err := parseHashKeys(data)
		if err != nil {
			for line := range strings.Lines(string(data)) {
				_, secret, _ := strings.Cut(line, ":")
				if secret = strings.TrimSpace(secret); len(secret) >= keys.MinSecretLen && strings.Contains(err.Error(), secret) {
					t.Fatalf("%q: %v", data, err)
				}
			}
			return
		}
		var again bytes.Buffer
		for _, k := range all {
			again.WriteString(k.ID + ":" + hex.EncodeToString(k.Secret) + "\n")
		}
		same, err := parseHashKeys(again.Bytes())
		if err != nil || len(all) > maxHashKeys || !slices.EqualFunc(same, all, func(a, b keys.HashKey) bool {
			return a.ID == b.ID && bytes.Equal(a.Secret, b.Secret) && len(a.Secret) >= keys.MinSecretLen
		}) {
			t.Fatalf("%q was read as %d keys, and these as %d: %v", data, len(all), len(same), err)
		}
	})
}

// FuzzHosts reads back the list of hosts that it took.
func FuzzHosts(f *testing.F) {
	for _, seed := range []string{"", "a", " a , b:9042", "a,,b", "[::1]:9042", "a@b", "a/b", ",", "a\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var list, again hostList
		if list.Set(text) != nil {
			return
		}
		if err := again.Set(list.String()); err != nil || !slices.Equal(list.list, again.list) || len(list.list) == 0 {
			t.Fatalf("%q: %q, and then %q, %v", text, list.list, again.list, err)
		}
	})
}
