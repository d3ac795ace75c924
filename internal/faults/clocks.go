//go:build unix

package faults

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faultclock"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

const (
	farAhead    = 5 * time.Second
	farBehind   = 8 * time.Second  // long enough for others to fill a window
	clockBound  = 20 * time.Second // until a wrong clock is noticed, as clocks are measured every two seconds
	clockWatch  = 5 * time.Second  // how long a process under warn is observed
	clockPolicy = "log"
)

// putClocksOff starts processes, sets the clock of each off by more than the tolerance and back, and returns how they
// reacted. They have identifiers of their own, because nothing is promised under warn.
func (r *run) putClocksOff(ctx context.Context) ([]history.ClockTest, error) {
	tests := []history.ClockTest{
		{Beyond: "refuse", Ahead: farAhead}, {Beyond: "warn", Ahead: farAhead}, {Beyond: "refuse", Ahead: -farBehind},
	}
	errs := make([]error, len(tests))
	var all sync.WaitGroup
	for i := range tests {
		all.Go(func() {
			errs[i] = r.putClockOff(ctx, r.Processes+i, &tests[i])
		})
	}
	all.Wait()
	return tests, errors.Join(errs...)
}

func (r *run) putClockOff(ctx context.Context, number int, test *history.ClockTest) error {
	p, err := r.newProcess(number, 0, "--clock-beyond-tolerance="+test.Beyond)
	if err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return errors.Join(err, p.close())
	}
	watch := r.watchClock
	if test.Ahead < 0 {
		watch = r.watchClockBehind
	}
	err = watch(ctx, p, test)
	r.Logf("clock off by %v under %s: refused after %v, back after %v %s", test.Ahead, test.Beyond,
		test.Noticed.Round(time.Millisecond), test.Back.Round(time.Millisecond), test.Wrong)
	return errors.Join(err, p.close())
}

func (r *run) watchClock(ctx context.Context, p *process, test *history.ClockTest) error {
	if _, err := r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("before: %v", err)
		return nil
	}
	if err := faultclock.Set(p.clock, test.Ahead); err != nil {
		return err
	}
	var err error
	if test.Beyond == "warn" {
		for began := time.Now(); time.Since(began) < clockWatch && err == nil; wait(ctx, pollEvery) {
			_, err = r.until(ctx, p, true)
		}
	} else {
		test.Noticed, err = r.until(ctx, p, false)
	}
	if err != nil {
		test.Wrong = fmt.Sprintf("while it was ahead: %v", err)
	}
	if err := faultclock.Set(p.clock, 0); err != nil {
		return err
	}
	if test.Back, err = r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("%s after it was back: %v", test.Wrong, err)
	}
	return nil
}

// decidesNothing reports whether a process gave a without using its own clock: a is a refusal, or a decision of the
// key's owner.
func (r *run) decidesNothing(a *history.Answer) bool {
	return a.Status == http.StatusServiceUnavailable && a.Recorded == history.No || r.history.Header.Peers && a.Decided()
}

// until waits until p is ready and decides, or is not ready and refuses, and returns the time. It fails if
// it takes too long.
func (r *run) until(ctx context.Context, p *process, serves bool) (time.Duration, error) {
	began := time.Now()
	call := history.Call{Op: history.Take, Demands: []history.Demand{{Policy: clockPolicy, Identifier: "clock-" + p.address()}}}
	for {
		ready := readyz(ctx, p.address())
		a, _ := ask(ctx, p.address(), &call, "")
		took := time.Since(began)
		switch {
		case serves && ready == http.StatusOK && a.Decided():
			return took, nil
		case !serves && ready == http.StatusServiceUnavailable && r.decidesNothing(&a):
			return took, nil
		case took > clockBound || ctx.Err() != nil:
			return took, fmt.Errorf("/readyz is %d, a take %d with recorded %s", ready, a.Status, a.Recorded)
		}
		wait(ctx, pollEvery)
	}
}

// readyz returns the status of a process's /readyz, or 0 without an answer.
func readyz(ctx context.Context, address string) (status int) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address+"/readyz", nil)
	if err != nil {
		return 0
	}
	response, err := transport.Do(request)
	if err != nil {
		return 0
	}
	defer response.Body.Close()
	return response.StatusCode
}
