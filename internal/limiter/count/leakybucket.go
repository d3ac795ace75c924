package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// leakyBucket holds admitted units and leaks its limit evenly in every window. It needs two numbers for any limit. A full
// bucket denies until enough has leaked. It is the leaky bucket as a meter (ITU-T I.371 annex A), at the same rate and
// depth as a token bucket with its limit as the burst.
var leakyBucket = &algorithm{
	Algorithm: policy.LeakyBucket,
	used:      usedOfBucket,
	wait:      waitForBucket,
	add:       (*Rule).AddToBucket,
	remove:    (*Rule).removeFromBucket,
	redate:    (*Rule).redateBucket,
}
