package load

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// pace returns a channel of the instants at which calls are due, each sent at its time. Busy callers find
// their calls waiting: no call is skipped or postponed.
func (r *run) pace(ctx context.Context, all *sync.WaitGroup) <-chan time.Time {
	due := make(chan time.Time, r.calls())
	sleep := r.Sleep
	if sleep == nil {
		sleep = sleepExactly
	}
	all.Go(func() {
		defer close(due)
		runtime.LockOSThread() // its sleep is a system call
		defer runtime.UnlockOSThread()
		for call := range r.calls() {
			at := r.dueAt(call)
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
