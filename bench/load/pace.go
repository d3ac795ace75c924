package load

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// pace returns a channel of the instants at which calls are due, each sent when it has come. Callers that are busy find
// their calls waiting: none is left out or put off.
func (r *run) pace(ctx context.Context, all *sync.WaitGroup) <-chan time.Time {
	begin := r.start.Add(-r.WarmUp)
	calls := int(r.Rate * r.end.Sub(begin).Seconds())
	due := make(chan time.Time, calls)
	sleep := r.Sleep
	if sleep == nil {
		sleep = sleepExactly
	}
	all.Go(func() {
		defer close(due)
		runtime.LockOSThread() // its sleep is the system's
		defer runtime.UnlockOSThread()
		for call := range calls {
			at := begin.Add(time.Duration(float64(call) / r.Rate * float64(time.Second)))
			for wait := time.Until(at); wait > 0; wait = time.Until(at) {
				sleep(wait)
			}
			if ctx.Err() != nil {
				return
			}
			due <- at
		}
	})
	return due
}
