package clock

import (
	"context"
	"sync"
	"time"
)

// Within is like context.WithTimeout, but makes its timer only when Done is first called, as a decision from memory needs
// none. If parent ends in time anyway, Within returns parent itself, and a CancelFunc that does nothing.
func Within(parent context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	until := time.Now().Add(timeout)
	if earlier, ok := parent.Deadline(); ok && !earlier.After(until) {
		return parent, func() {}
	}
	w := &within{parent: parent, until: until}
	return w, w.cancel
}

// within is a context that ends at an instant.
type within struct {
	parent context.Context
	until  time.Time

	mu    sync.Mutex
	over  bool            // it was cancelled
	timed context.Context // nil: Done has not been called yet
	stop  context.CancelFunc
}

func (w *within) Deadline() (time.Time, bool) { return w.until, true }

// Done makes the timer.
func (w *within) Done() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timed == nil {
		w.timed, w.stop = context.WithDeadline(w.parent, w.until)
		if w.over {
			w.stop()
		}
	}
	return w.timed.Done()
}

func (w *within) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.timed != nil:
		return w.timed.Err()
	case w.parent.Err() != nil:
		return w.parent.Err()
	case w.over:
		return context.Canceled
	case !time.Now().Before(w.until):
		return context.DeadlineExceeded
	}
	return nil
}

// Value returns the timed context's value once there is one, so that contexts derived from w are its children, and end
// without a goroutine of their own.
func (w *within) Value(key any) any {
	w.mu.Lock()
	ctx := w.timed
	w.mu.Unlock()
	if ctx == nil {
		ctx = w.parent
	}
	return ctx.Value(key)
}

func (w *within) cancel() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.stop != nil {
		w.stop()
	}
}
