package held

import (
	"context"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
)

// SettleEvent makes n's event stay, which was held, if t keeps events.
func (x *Decider) SettleEvent(ctx context.Context, t *demand.Target, n *count.Entry) error {
	if len(t.Plan.Logs) == 0 {
		return nil
	}
	return x.Store.Write(ctx, t.Settling(n))
}
