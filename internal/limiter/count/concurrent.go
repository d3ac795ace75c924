package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// concurrent is a sliding log whose window is the hold. It is never steady, as a release removes events at any time.
var concurrent = &algorithm{
	Algorithm: policy.Concurrent,
	used:      usedOfLog,
	wait:      waitForLog,
}
