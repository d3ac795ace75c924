package decode

import (
	"net/http"
	"strconv"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// IdempotencyKeyHeader is the header of a caller's key.
const IdempotencyKeyHeader = "Idempotency-Key"

// IdempotencyKey returns the key in h, empty when there is none.
func IdempotencyKey(h http.Header) (string, error) {
	given := h[IdempotencyKeyHeader]
	switch {
	case len(given) == 0:
		return "", nil
	case len(given) > 1:
		return "", Wrong(IdempotencyKeyHeader, "It is given more than once.")
	}
	return given[0], Under(IdempotencyKeyHeader, checkIdempotencyKey(given[0]))
}

// checkIdempotencyKey returns an error for keys that a header could not carry, since a key is the same in a header and
// in a batch.
func checkIdempotencyKey(key string) error {
	if key == "" || len(key) > limiter.MaxIdempotencyKeyLen {
		return Wrong("", "It must be 1 to "+strconv.Itoa(limiter.MaxIdempotencyKeyLen)+" bytes long.")
	}
	for _, c := range []byte(key) {
		if c < ' ' || c > '~' {
			return Wrong("", "It must be printable ASCII, such as a UUID.")
		}
	}
	if key[0] == ' ' || key[len(key)-1] == ' ' { // which a header would lose
		return Wrong("", "It must not begin or end with a blank.")
	}
	return nil
}

// RefuseIdempotencyKey returns an error if h has the header on a route without one. To ignore it would count the
// retries of its sender twice.
func RefuseIdempotencyKey(h http.Header) error {
	if h[IdempotencyKeyHeader] == nil {
		return nil
	}
	return Wrong(IdempotencyKeyHeader, "A batch has no key of its own: give its operations an idempotency_key each.")
}
