package decode

import (
	"bytes"
	"errors"
	"net/http"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// FuzzIdempotencyKey holds that a key is accepted if and only if a header can carry it.
func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", "a", " ", "\x00", "\x7f", "é", "0192b6c1-7e4e-7b1d-9f5e-8c0d3f1a2b3c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		got, err := IdempotencyKey(http.Header{"Idempotency-Key": {key}})
		if err != nil {
			if mistake := (*Error)(nil); !errors.As(err, &mistake) || !errors.Is(err, limiter.ErrInvalid) {
				t.Fatal(err)
			}
			return
		}
		if got != key || key == "" || len(key) > limiter.MaxIdempotencyKeyLen || bytes.ContainsFunc([]byte(key), func(c rune) bool {
			return c < ' ' || c > '~'
		}) {
			t.Fatalf("%q is taken as %q", key, got)
		}
	})
}
