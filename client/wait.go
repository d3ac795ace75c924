package client

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/client/line"
)

// Wait takes demands as soon as their limits allow. It waits as long as a denial says, and a bit longer by
// chance, and takes again. Calls of this Client that want the same policies and identifiers come in turn. The Decision allows
// where the error is nil.
//
// The error wraps ErrNoRoom as soon as it is known that ctx's deadline is too early or that no wait helps, and where
// 1000 calls wait already; the Decision is then the last denial, if there was one. Other errors are those of Take, and
// end the wait at once. Don't wait under a policy with count: all, where each try uses quota.
func (c *Client) Wait(ctx context.Context, demands ...Demand) (d Decision, err error) {
	why := c.lines.Do(ctx, line.Key(demands, Demand.key), func() (time.Duration, bool) {
		d, err = c.Take(ctx, demands...)
		return d.RetryAfter, err != nil || d.Allowed
	})
	if why != nil {
		return d, &CallError{string(OpTake), RecordedNo, why}
	}
	return d, err
}

func (d Demand) key() (policy, identifier string) { return d.Policy, d.Identifier }
