package encode

import "github.com/ratelimitd/ratelimitd/internal/limiter"

// AppendConfirmation appends the members of the outcome of a confirmation in a batch.
func AppendConfirmation(b []byte, c limiter.Confirmation) []byte {
	b = appendBool(b, `"status":200,"confirmed":`, c.Confirmed)
	if c.Replayed {
		b = append(b, `,"replayed":true`...)
	}
	return b
}
