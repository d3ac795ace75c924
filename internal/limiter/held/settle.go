package held

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
)

// SettleEvent makes n's event stay, which was held, if t keeps events. Nobody need be asked whether one that
// is not there was removed.
func (x *Decider) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry, _ func() (bool, error)) error {
	if len(t.Plan.Logs) == 0 {
		return nil
	}
	return x.store.Write(ctx, t.Settling(n))
}
