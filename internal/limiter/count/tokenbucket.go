package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// TokenBucket holds up to burst tokens, is full at first, and is refilled evenly by its limit in every window. A request
// takes as many tokens as it costs. The state is a bucket of taken units, which drains as the tokens come back.
var TokenBucket = &algorithm{
	Algorithm: policy.TokenBucket,
	used:      usedOfBucket,
	wait:      waitForBucket,
	add:       (*Rule).AddToBucket,
	remove:    (*Rule).removeFromBucket,
	redate:    (*Rule).redateBucket,
}
