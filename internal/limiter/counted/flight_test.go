package counted

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestLateRequestsJoinNoBatch holds that a request whose time is over joins no batch: after a process was suspended, the
// next leader may be appointed before the callers that wait notice the time.
func TestLateRequestsJoinNoBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f flights
		late := &demand.Charge{Op: count.OpTake, Until: time.Now()}
		if _, err := f.enter(&demand.Charge{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.enter(late); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		f.passOn(store.Key{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		batch, _, err := f.wait(ctx, late, time.Second)
		if batch != nil || err != nil || late.Err == nil || len(f.keys) > 0 {
			t.Errorf("it leads a batch of %d, error %v, answer %v, %d keys are busy; want an error answer", len(batch), err, late.Err, len(f.keys))
		}
	})
}
