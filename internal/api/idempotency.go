package api

import (
	"net/http"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// The headers of idempotency: a caller's key, and the mark of an answer that is the
// recorded one.
const (
	idempotencyKeyHeader = "Idempotency-Key"
	replayedHeader       = "Idempotent-Replayed"
)

// idempotencyKey returns the key in h, empty when there is none.
func idempotencyKey(h http.Header) (string, error) {
	given := h[idempotencyKeyHeader]
	switch {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", wrong(idempotencyKeyHeader, "It is there more than once.")
	}
	return given[0], under(idempotencyKeyHeader, checkIdempotencyKey(given[0]))
}

// checkIdempotencyKey refuses keys that a header could not carry: a key is the same
// in a header and in a batch.
func checkIdempotencyKey(key string) error {
	if key == "" || len(key) > limiter.MaxIdempotencyKeyLen {
		return wrong("", "It must be 1 to "+strconv.Itoa(limiter.MaxIdempotencyKeyLen)+" bytes long.")
	}
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return wrong("", "It must be printable ASCII, such as a UUID.")
		}
	}
	if key[0] == ' ' || key[len(key)-1] == ' ' { // which a header loses on its way
		return wrong("", "It must not begin or end with a blank.")
	}
	return nil
}

// refuseIdempotencyKey refuses the header where it means nothing rather than ignoring
// it: who sends one retries, and would be counted twice.
func refuseIdempotencyKey(h http.Header) error {
	if h[idempotencyKeyHeader] == nil {
		return nil
	}
	return wrong(idempotencyKeyHeader, "A batch has no key of its own: give its operations an idempotency_key each.")
}
