//go:build unix

package faults

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faultclock"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

const (
	behindPolicy  = "wide-fixed"
	behindKeys    = 2 // others can fill two in half a window, even on a busy machine
	behindTries   = 6
	behindTakes   = 3               // for each key
	behindCallers = 4               // for each key
	behindStart   = 5 * time.Second // before a window ends
)

// watchClockBehind sets the clock of p back at the end of a window in which p has counted. Others fill the next
// window while p, by its clock, is still in the previous one. When its clock is right again, no more may be admitted
// than there is room for. An attempt that is too slow proves nothing.
func (r *run) watchClockBehind(ctx context.Context, p *process, test *history.ClockTest) error {
	if _, err := r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("before: %v", err)
		return nil
	}
	var vain []string
	for range behindTries {
		why, err := r.fillBehind(ctx, p, test)
		if why == "" || err != nil || test.Wrong != "" {
			return err
		}
		r.Logf("clock off by %v: inconclusive attempt: %s", test.Ahead, why)
		vain = append(vain, why)
	}
	test.Wrong = "no try told anything: " + strings.Join(vain, "; ")
	return nil
}

// fillBehind makes one attempt. It returns the reason if the attempt proves nothing, or "".
func (r *run) fillBehind(ctx context.Context, p *process, test *history.ClockTest) (why string, err error) {
	policy, other := r.history.Header.Policy(behindPolicy), r.steadiest().address()
	soonest := time.Now().Add(behindStart).UnixMilli()
	edge := time.UnixMilli(soonest - soonest%policy.Window.Milliseconds()).Add(policy.Window)
	wait(ctx, time.Until(edge.Add(-behindStart)))
	r.takeEach(ctx, p.address(), 1, behindTakes)
	if err := faultclock.Set(p.clock, test.Ahead); err != nil {
		return "", err
	}
	if left := time.Until(edge); left <= 2*r.Tolerance {
		why = fmt.Sprintf("only %v before the window's end its clock was behind", left)
	}
	if test.Noticed, err = r.until(ctx, p, false); err != nil {
		test.Wrong = fmt.Sprintf("while it was behind: %v", err)
	}
	wait(ctx, time.Until(edge.Add(2*r.Tolerance))) // the window has begun by every valid clock
	itsEnd := edge.Add(-test.Ahead)
	before, enough := context.WithDeadline(ctx, itsEnd.Add(-3*r.Tolerance))
	filled, _ := r.takeEach(before, other, behindCallers, policy.Limit)
	enough()
	if left := time.Until(itsEnd); why == "" && left <= 2*r.Tolerance {
		why = fmt.Sprintf("only %v before its window's end others had filled the next", left)
	}
	wait(ctx, time.Until(itsEnd.Add(time.Second)))
	if err := faultclock.Set(p.clock, 0); err != nil {
		return "", err
	}
	if test.Back, err = r.until(ctx, p, true); err != nil {
		test.Wrong = fmt.Sprintf("%s after it was right again: %v", test.Wrong, err)
	}
	over := edge.Add(policy.Window - 2*r.Tolerance) // units that are admitted later may belong to another window
	if !time.Now().Before(over) {
		return fmt.Sprintf("it was served again only %v after the window began that others filled", time.Since(edge)), nil
	}
	within, stop := context.WithDeadline(ctx, over)
	more, full := r.takeEach(within, p.address(), 1, policy.Limit)
	stop()
	told := 0
	for i := range filled {
		switch {
		case filled[i] > policy.Limit/2 && full[i]: // it called until it was denied
			told++
		case why == "" && !r.history.Header.Peers:
			why = fmt.Sprintf("others were admitted only %d of %d", filled[i], policy.Limit)
		}
		if filled[i]+more[i] > policy.Limit {
			test.Wrong += fmt.Sprintf("in a window of %d others were admitted %d, and it %d. ", policy.Limit, filled[i], more[i])
		}
	}
	if why == "" && told == 0 { // if p owns a key, calls of others are refused, too
		why = "others were admitted hardly anything of any key"
	}
	return why, nil
}

// steadiest returns the process whose clock is closest to the right time.
func (r *run) steadiest() *process {
	return slices.MinFunc(r.processes, func(a, b *process) int { return cmp.Compare(a.ahead.Abs(), b.ahead.Abs()) })
}

func behindCall(op string, key int) history.Call {
	return history.Call{Op: op, Demands: []history.Demand{{Policy: behindPolicy, Identifier: fmt.Sprint("behind-", key)}}}
}

// takeEach takes units of each key until one is denied, with up to most calls by each of several callers, and returns
// how many were admitted, and for which keys one was denied. A failed call is not a denial.
func (r *run) takeEach(
	ctx context.Context, address string, callers int, most int64,
) (admitted [behindKeys]int64, denied [behindKeys]bool) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range behindKeys * callers {
		key := i % behindKeys
		call := behindCall(history.Take, key)
		all.Go(func() {
			for range most {
				a, _ := ask(ctx, address, &call, "")
				if ctx.Err() != nil && !a.Allowed {
					return
				}
				mu.Lock()
				if a.Decided() && !a.Allowed {
					denied[key] = true
					mu.Unlock()
					return
				}
				if a.Allowed {
					admitted[key]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return admitted, denied
}
