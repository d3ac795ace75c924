package limiter_test

import (
	"context"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// writeAll stores all of w in the end, or nothing: once a coordinator has it, it reaches
// every replica, though much later where nodes or messages fail.
func (c *cluster) writeAll(ctx context.Context, from *process, w []store.Write) error {
	var trips []trip
	c.enter(&arrival{from: from.n, kind: -1, key: w[0].Key, begin: func() {
		whole, goes := c.departs()
		accepted := goes && !c.chance(c.weather.lost)
		if goes {
			c.spoil(&whole)
		}
		for i := range w {
			t := whole
			if accepted {
				t = c.replay(&whole, w[i].Level)
			}
			trips = append(trips, t)
			for j := range w[i].Logs {
				c.append(&c.partition(w[i].Key).logs[w[i].Logs[j].Span], &w[i], &w[i].Logs[j], &t)
			}
		}
	}})
	return from.await(ctx, trips...)
}

// replay draws the way of one part of a batch that will be stored.
func (c *cluster) replay(whole *trip, level policy.Level) trip {
	t := *whole
	var back [nodes]time.Duration
	for i := range nodes {
		if t.reaches[i], back[i] = c.reach(t.leaves); t.reaches[i] == never {
			t.reaches[i] = t.leaves + c.between(timeout, longPause)
		}
	}
	t.hear(back, level)
	if whole.fails != nil || c.chance(c.weather.silent) {
		t.answers = whole.answers
	}
	return t
}
