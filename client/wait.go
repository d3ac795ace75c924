package client

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/client/line"
)

// Wait takes demands as soon as their limits allow. After a denial, it waits for its RetryAfter and a bit longer by
// chance, and takes again. Calls of this Client with the same policies and identifiers take turns. If the error is nil,
// the Decision allows.
//
// The error wraps ErrNoRoom as soon as it is known that ctx's deadline is too early or that no wait helps, and if 1000
// calls wait already. The Decision is then the last denial, if there was one. Other errors are those of Take, and end
// the wait at once. Don't use it for a policy with count: all, under which each try uses units.
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
