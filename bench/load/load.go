// Package load calls a service in a closed loop with a number of callers, or in an open loop at a fixed rate
// whose latencies are measured from when a call was due, so that they include the delays by a stalled service. It knows
// neither the service nor other users of the processor.
package load

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Options are the options of Run. All are required except Rate, Batch, Mark and Sleep.
type Options struct {
	// Open returns a caller whose takes have this many units.
	Open        func(cost int64) (Caller, error)
	Connections int
	// Rate is how many calls are due in a second; 0: each caller makes a call as soon as it has an answer.
	Rate             float64
	WarmUp, Duration time.Duration
	Keys             Keys
	Seed             uint64
	Batch            int // keys a call; 0: one
	// Limit in Window is the limit of each key.
	Limit  int64
	Window time.Duration
	// Mark is called at the beginning and the end of the measurement.
	Mark func()
	// Sleep is how an open loop waits; nil: as exactly as the system can.
	Sleep func(time.Duration)
}

// Result is the result of a run.
type Result struct {
	Outcome               // of the measurement
	Elapsed time.Duration // of the measurement, until the last answer
	// Latency is in nanoseconds, of calls.
	Latency *hdrhistogram.Histogram
	// Whole is the outcome of all calls, including the warm-up. AllowedMin and AllowedMax are the bounds of its allowed
	// calls.
	Whole                  Outcome
	AllowedMin, AllowedMax int64
	// WrongDenials counts calls that were denied although fewer than the limit of their key can have been allowed before, and
	// OverAdmitted those that were allowed beyond the limit and the units that it frees, for all keys. Batches are left
	// out.
	WrongDenials, OverAdmitted int64
}

// Check returns an error if more or fewer calls were allowed than the limit and the keys permit.
func (r *Result) Check() error {
	if r.Whole.Allowed < r.AllowedMin-r.Whole.Failed || r.Whole.Allowed > r.AllowedMax {
		return fmt.Errorf("%d of %d calls were allowed, and %d failed; want %d to %d",
			r.Whole.Allowed, r.Whole.Sent(), r.Whole.Failed, r.AllowedMin, r.AllowedMax)
	}
	return nil
}

const (
	shortest, longest = time.Microsecond, time.Minute // resolved by a histogram
	digits            = 3
)

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(shortest), int64(longest), digits)
}

// run is one load in progress.
type run struct {
	Options
	tally      tally
	start, end time.Time // of the measurement
	due        <-chan time.Time
}

// Run makes calls until o.Duration has passed after the warm-up, or ctx ends. It fails if callers can't be opened.
func Run(ctx context.Context, o Options) (*Result, error) {
	r := &run{Options: o}
	r.Batch = max(r.Batch, 1)
	begin := time.Now()
	if err := r.prime(); err != nil {
		return nil, fmt.Errorf("bringing keys to their limit: %w", err)
	}
	workers, err := r.workers()
	if err != nil {
		return nil, err
	}
	cut := context.AfterFunc(ctx, func() { closeAll(workers) })
	defer closeAll(workers)
	defer cut()
	r.start = time.Now().Add(o.WarmUp)
	r.end = r.start.Add(o.Duration)
	result, err := r.measure(ctx, workers)
	if err != nil {
		return nil, err
	}
	elapsed := time.Since(begin)
	result.AllowedMin, result.AllowedMax = r.tally.bounds(o.Keys.primed, o.Limit, o.Window, elapsed)
	result.WrongDenials, result.OverAdmitted = r.tally.wrong.Load(), r.tally.over(o.Keys.primed, o.Limit, o.Window, elapsed)
	return result, nil
}

// prime uses up the limit of the keys that must be denied from the start.
func (r *run) prime() error {
	if r.Keys.primed == 0 {
		return nil
	}
	caller, err := r.Open(r.Limit)
	if err != nil {
		return err
	}
	defer caller.Close()
	for key := uint64(0); key < r.Keys.primed; {
		keys := make([]uint64, r.Batch)
		for i := range keys {
			keys[i] = key // a batch may have more keys than needed, because no worker uses these
			key++
		}
		outcome, err := caller.Take(keys)
		if err != nil {
			return err
		}
		if outcome.Failed > 0 || outcome.Denied > 0 {
			return fmt.Errorf("of %d calls, %d were denied and %d failed", len(keys), outcome.Denied, outcome.Failed)
		}
	}
	return nil
}

func (r *run) workers() (workers []*worker, err error) {
	for i := range r.Connections {
		w := &worker{run: r, latency: newHistogram(), next: r.Keys.of(r.Seed, i, r.Connections)}
		if w.caller, err = r.Open(1); err != nil {
			closeAll(workers)
			return nil, err
		}
		workers = append(workers, w)
	}
	return workers, nil
}

func closeAll(workers []*worker) {
	for _, w := range workers {
		w.close()
	}
}

// measure runs the workers, and adds up their results.
func (r *run) measure(ctx context.Context, workers []*worker) (*Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	for _, work := range r.loops(ctx, &all, workers) {
		all.Go(func() {
			if err := work(ctx); err != nil {
				cancel(err)
			}
		})
	}
	r.waitFor(ctx, r.start)
	r.mark()
	all.Wait()
	elapsed := time.Since(r.start)
	r.mark()
	result := &Result{Latency: newHistogram(), Elapsed: elapsed}
	for _, w := range workers {
		result.add(w.measured)
		result.Whole.add(w.whole)
		result.Latency.Merge(w.latency)
	}
	return result, context.Cause(ctx)
}

// loops returns the loops that make calls: one thread per group of connections if threads can wait for them, or else the
// workers.
func (r *run) loops(ctx context.Context, all *sync.WaitGroup, workers []*worker) (loops []func(context.Context) error) {
	if pollable(workers) {
		threads := min(max(1, runtime.NumCPU()/4), len(workers))
		for i := range threads {
			p := &poller{run: r, first: i, step: threads}
			for at := i; at < len(workers); at += threads {
				p.workers = append(p.workers, workers[at])
			}
			loops = append(loops, p.work)
		}
		return loops
	}
	if r.Rate > 0 {
		r.due = r.pace(ctx, all)
	}
	for _, w := range workers {
		loops = append(loops, w.work)
	}
	return loops
}

// dueAt returns when the n-th call of an open loop is due.
func (r *run) dueAt(call int) time.Time {
	return r.start.Add(-r.WarmUp).Add(time.Duration(float64(call) / r.Rate * float64(time.Second)))
}

// calls returns how many calls an open loop makes.
func (r *run) calls() int { return int(r.Rate * (r.WarmUp + r.Duration).Seconds()) }

func (r *run) mark() {
	if r.Mark != nil {
		r.Mark()
	}
}

func (r *run) waitFor(ctx context.Context, at time.Time) {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
