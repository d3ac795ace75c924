package count

import "github.com/ratelimitd/ratelimitd/internal/limiter/policy"

// concurrent is a sliding log whose window is the hold, and whose events a release takes out. So fewer units may be
// used at any time: it is never steady.
var concurrent = &algorithm{
	Algorithm: policy.Concurrent,
	used:      usedOfLog,
	wait:      waitForLog,
}
