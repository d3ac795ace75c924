package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// worker is one caller and its results.
type worker struct {
	*run
	next            func() uint64
	latency         *hdrhistogram.Histogram
	measured, whole Outcome

	mu     sync.Mutex // of caller, which Run closes
	caller Caller
}

func (w *worker) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.caller.Close() // an error loses no data
}

// work makes calls until the end. In an open loop it continues until all calls due by then have answers.
func (w *worker) work(ctx context.Context) error {
	keys := make([]uint64, w.Batch)
	for ctx.Err() == nil {
		due, more := w.wait()
		if !more {
			return nil
		}
		for i := range keys {
			keys[i] = w.next()
		}
		if err := w.take(ctx, keys, due); err != nil {
			return err
		}
	}
	return nil
}

// wait returns when the next call is due, which may be in the past.
func (w *worker) wait() (due time.Time, more bool) {
	if w.due != nil {
		due, more = <-w.due
		return due, more
	}
	now := time.Now()
	return now, now.Before(w.end)
}

func (w *worker) take(ctx context.Context, keys []uint64, due time.Time) error {
	w.tally.add(keys)
	outcome, err := w.caller.Take(keys)
	late := time.Since(due)
	if err != nil {
		outcome = Outcome{Failed: int64(len(keys))}
		if err := w.reopen(ctx, err); err != nil {
			return err
		}
	}
	return w.saw(keys, outcome, due, late)
}

// saw notes the outcome of a call for keys that was due then.
func (w *worker) saw(keys []uint64, outcome Outcome, due time.Time, late time.Duration) error {
	w.whole.add(outcome)
	if len(keys) == 1 {
		w.tally.saw(keys[0], outcome, w.Keys.primed, w.Limit)
	}
	if due.Before(w.start) {
		return nil
	}
	w.measured.add(outcome)
	return w.latency.RecordValue(int64(min(max(late, shortest), longest)))
}

// reopen replaces a caller that failed.
func (w *worker) reopen(ctx context.Context, why error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.caller.Close() // the caller has failed already
	caller, err := w.Open(1)
	if err != nil {
		return fmt.Errorf("calling again after %w: %w", why, err)
	}
	w.caller = caller
	return nil
}
