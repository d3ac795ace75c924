package peer

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
)

// TestAnotherMemberAnswers has an address lead to another member than the one that has it, as behind a load balancer: the member is
// not reached, and nothing is handed on to the other.
func TestAnotherMemberAnswers(t *testing.T) {
	for self, want := range map[cluster.ID]cluster.Reach{"another": cluster.Unreached, "owner": cluster.Reached, "": cluster.Reached} {
		asked := make(chan struct{}, 1)
		known := &views{self: self}
		address, _ := serveAs(t, "127.0.0.1:0", plain, known, func(ctx context.Context, c *demand.Charge) error {
			asked <- struct{}{}
			return deny(ctx, c)
		})
		pool, members := connect(t, address, plain)
		members.reach.Store(-1)
		for late := time.Now().Add(20 * time.Second); !members.is(want); <-time.After(5 * time.Millisecond) {
			pool.link(members.member) // once the pool runs
			if time.Now().After(late) {
				t.Fatalf("%q answers: the owner is not said to be %v", self, want)
			}
		}
		if want == cluster.Unreached {
			if err := handOn(t.Context(), pool, take(1)); err == nil || len(asked) > 0 {
				t.Errorf("%q was handed the owner's call: %v", self, err)
			}
		} else if err := await(t, pool, take(1)); err != nil {
			t.Errorf("%q: %v", self, err)
		}
		handed := pool.HandOver(t.Context(), members.member, 1, nil)
		if (handed != nil) != (want == cluster.Unreached) {
			t.Errorf("%q takes over keys: %v", self, handed)
		}
	}
}
