package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// TokenBucket holds up to burst tokens, full at first, and is refilled by its limit
// in every window, evenly; a request takes as many as it costs. It is kept as a bucket of taken units, which drains as
// the tokens come back.
var TokenBucket = &algorithm{
	Algorithm: policy.TokenBucket,
	used:      usedOfBucket,
	wait:      waitForBucket,
	add:       (*Rule).AddToBucket,
	remove:    (*Rule).removeFromBucket,
	redate:    (*Rule).redateBucket,
}
