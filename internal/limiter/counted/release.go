package counted

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
)

// release removes e's event from the log of t, whose limits are concurrent, and then from what this instance knows of t by
// right. If this instance dies in between, the store has the release.
func (c *counted) release(ctx context.Context, t *demand.Target, right owner.Right, e *count.Entry) error {
	if !t.Plan.GivesBack(e) {
		return nil
	}
	if err := c.behind.writeKey(ctx, t.Key); err != nil { // a removal before the event's write would leave it
		return err
	}
	if err := c.giveBack(ctx, t, e, true); err != nil {
		return err
	}
	c.owned.changes.Note(&t.Key) // a read that is under way may have the event
	c.owned.takeOut(t, right, []count.Entry{*e})
	c.denied.Remove(t.Key)
	c.denials.Forget(t.Key)
	return nil
}
