//go:build unix

package faults

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/clock"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

const (
	behindPolicy  = "early-fixed-window"
	behindKeys    = 8
	behindTakes   = 3               // of each key, that leave some of what was counted ahead with the first
	behindCallers = 4               // of each
	behindStart   = 5 * time.Second // before a window ends
)

// watchClockBehind puts the clock of p behind while it has units left that were counted
// ahead, at the end of a window. Others fill the next window while p, by its clock, is in the
// one before. When its clock is right again, no more may be admitted than there is room for.
func (r *run) watchClockBehind(ctx context.Context, p *process, test *history.ClockTest) error {
	policy := r.history.Header.Policy(behindPolicy)
	if _, err := r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("before: %v", err)
		return nil
	}
	soonest := time.Now().Add(behindStart).UnixMilli()
	edge := time.UnixMilli(soonest - soonest%policy.Window.Milliseconds()).Add(policy.Window)
	wait(ctx, time.Until(edge.Add(-behindStart)))
	r.takeEach(ctx, p.address(), 1, behindTakes)
	if err := clock.Set(p.clock, test.Ahead); err != nil {
		return err
	}
	var err error
	if test.Noticed, err = r.until(ctx, p, false); err != nil {
		test.Wrong = fmt.Sprintf("while it was behind: %v", err)
	}
	wait(ctx, time.Until(edge.Add(2*r.Tolerance)))                                   // the window has begun by every clock that counts
	filled := r.takeEach(ctx, r.processes[0].address(), behindCallers, policy.Limit) // before p's clock is near its end
	wait(ctx, time.Until(edge.Add(-test.Ahead+time.Second)))                         // it has by p's clock, too
	if err := clock.Set(p.clock, 0); err != nil {
		return err
	}
	if test.Back, err = r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("%s after it was right again: %v", test.Wrong, err)
	}
	more := r.takeEach(ctx, p.address(), 1, policy.Limit)
	late := time.Since(edge.Add(policy.Window-r.Tolerance)) > 0
	for i := range filled {
		if filled[i] < policy.Limit/2 || filled[i]+more[i] > policy.Limit || late {
			test.Wrong += fmt.Sprintf("in a window of %d others were admitted %d, and it %d; late %t. ", policy.Limit, filled[i], more[i], late)
		}
	}
	return nil
}

// takeEach takes units of each of some keys until one is denied, most calls at most by each of
// some callers, and returns how many were admitted. One that fails is no denial.
func (r *run) takeEach(ctx context.Context, address string, callers int, most int64) (admitted [behindKeys]int64) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range behindKeys * callers {
		key := i % behindKeys
		call := history.Call{Op: history.Take, Demands: []history.Demand{{Policy: behindPolicy, Identifier: fmt.Sprint("behind-", key)}}}
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
