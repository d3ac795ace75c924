//go:build unix

package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/clock"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

const (
	behindPolicy  = "early-fixed-window"
	behindKeys    = 4
	behindTries   = 3
	behindTakes   = 3               // of each key, that leave some of what was counted ahead with the first
	behindCallers = 4               // of each
	behindStart   = 5 * time.Second // before a window ends
)

// watchClockBehind puts the clock of p behind while it has units left that were counted
// ahead, at the end of a window. Others fill the next window while p, by its clock, is in the
// one before. When its clock is right again, no more may be admitted than there is room for.
// A try that is too slow for that tells nothing.
func (r *run) watchClockBehind(ctx context.Context, p *process, test *history.ClockTest) error {
	if _, err := r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("before: %v", err)
		return nil
	}
	for range behindTries {
		if told, err := r.fillBehind(ctx, p, test); told || err != nil || test.Wrong != "" {
			return err
		}
	}
	test.Wrong = fmt.Sprintf("of %d tries none was in time", behindTries)
	return nil
}

// fillBehind is one try, and reports whether it was in time.
func (r *run) fillBehind(ctx context.Context, p *process, test *history.ClockTest) (told bool, err error) {
	policy := r.history.Header.Policy(behindPolicy)
	last := policy.Window / 8 // in which leases are made to go on
	soonest := time.Now().Add(behindStart).UnixMilli()
	edge := time.UnixMilli(soonest - soonest%policy.Window.Milliseconds()).Add(policy.Window)
	wait(ctx, time.Until(edge.Add(-behindStart)))
	taken := r.takeEach(ctx, p.address(), 1, behindTakes)
	told = slices.Min(taken[:]) == behindTakes && r.countedAhead(ctx)
	if err := clock.Set(p.clock, test.Ahead); err != nil {
		return false, err
	}
	told = told && time.Until(edge) > last+2*r.Tolerance
	if test.Noticed, err = r.until(ctx, p, false); err != nil {
		test.Wrong = fmt.Sprintf("while it was behind: %v", err)
	}
	wait(ctx, time.Until(edge.Add(2*r.Tolerance))) // the window has begun by every clock that counts
	filled := r.takeEach(ctx, r.processes[0].address(), behindCallers, policy.Limit)
	itsEnd := edge.Add(-test.Ahead)
	told = told && time.Until(itsEnd) > last+2*r.Tolerance
	wait(ctx, time.Until(itsEnd.Add(time.Second)))
	if err := clock.Set(p.clock, 0); err != nil {
		return false, err
	}
	if test.Back, err = r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("%s after it was right again: %v", test.Wrong, err)
	}
	more := r.takeEach(ctx, p.address(), 1, policy.Limit)
	if time.Since(edge) > policy.Window-r.Tolerance {
		return false, nil
	}
	for i := range filled {
		told = told && filled[i] > policy.Limit/2
		if filled[i]+more[i] > policy.Limit {
			test.Wrong += fmt.Sprintf("in a window of %d others were admitted %d, and it %d. ", policy.Limit, filled[i], more[i])
		}
	}
	return told, nil
}

// countedAhead reports whether more is counted of each key than was taken.
func (r *run) countedAhead(ctx context.Context) bool {
	for i := range behindKeys {
		call := behindCall(history.Check, i)
		if a, _ := ask(ctx, r.processes[0].address(), &call, ""); !a.Decided() || a.Used[0] <= behindTakes {
			return false
		}
	}
	return true
}

func behindCall(op string, key int) history.Call {
	return history.Call{Op: op, Demands: []history.Demand{{Policy: behindPolicy, Identifier: fmt.Sprint("behind-", key)}}}
}

// takeEach takes units of each of some keys until one is denied, most calls at most by each of
// some callers, and returns how many were admitted. One that fails is no denial.
func (r *run) takeEach(ctx context.Context, address string, callers int, most int64) (admitted [behindKeys]int64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range behindKeys * callers {
		key := i % behindKeys
		call := behindCall(history.Take, key)
		all.Go(func() {
			for range most {
				a, _ := ask(ctx, address, &call, "")
				if a.Decided() && !a.Allowed || ctx.Err() != nil {
					return
				}
				mu.Lock()
				if a.Allowed {
					admitted[key]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return admitted
}
