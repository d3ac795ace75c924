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

// TestLateRequestsTravelWithNoBatch holds that a batch takes along nobody whose time is over: a process that stood
// still passes the lead on before those that wait know what time it is.
func TestLateRequestsTravelWithNoBatch(t *testing.T) {
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
			t.Errorf("it leads %d, error %v, answered %v, %d keys are busy; want an error", len(batch), err, late.Err, len(f.keys))
		}
	})
}
