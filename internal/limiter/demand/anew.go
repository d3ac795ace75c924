package demand

import (
	"errors"
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// ErrSuperseded is a call that was not decided, and of which nothing counts: a later version of the policies is
// in force.
var ErrSuperseded = fmt.Errorf("%w: a later version of the policies is in force", store.ErrUnavailable)

// BeginsAnew reports whether err is that of a call that is to be decided anew.
func BeginsAnew(err error) bool {
	if err == nil { // so that the usual case allocates nothing
		return false
	}
	failed := (*count.StoreError)(nil)
	return errors.As(err, &failed) && failed.Recorded == count.RecordedNo && errors.Is(err, ErrSuperseded)
}

// CanAbort reports whether c does not count if others deny.
func (c *Charge) CanAbort() bool { return c.Plan.Count != policy.CountAll }
