package check

import (
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// answers counts answers, and checks that each one is possible and came in time.
func (c *checker) answers() {
	first := make(map[string]*history.Call)
	for i := range c.h.Calls {
		call := &c.h.Calls[i]
		c.f.Calls++
		c.count(call)
		c.inTime(call)
		if (!call.Decided() || call.Status == 404 && !call.Ends()) && call.Status != 0 && call.Status != 503 {
			c.f.add(Violation{CheckAnswer, "", fmt.Sprintf("status %d", call.Status), []history.Call{*call}})
		}
		if call.Key == "" || call.Status != 200 {
			continue
		}
		if before := first[call.Key]; before != nil && before.Receipt != call.Receipt {
			c.f.add(Violation{CheckAnswer, "", "two answers under one key", []history.Call{*before, *call}})
		}
		first[call.Key] = call
	}
}

func (c *checker) count(call *history.Call) {
	switch {
	case call.Ends() && call.Decided():
		c.f.Ended++
	case call.Status == 200:
		c.f.Admitted++
	case call.Status == 429:
		c.f.Denied++
	case call.Recorded == history.No:
		c.f.Failed++
	default:
		c.f.Unknown++
	}
}

// inTime checks that an answer took no longer than the store timeout allows, not counting the time that its process or the
// machine was frozen.
func (c *checker) inTime(call *history.Call) {
	took := call.Returned - call.Called - c.stood(call)
	c.f.Slowest = max(c.f.Slowest, took)
	if most := c.h.Header.StoreTimeout + answerAllowance; took > most {
		c.f.add(Violation{CheckLate, "", fmt.Sprintf("answered after %v, at most %v are allowed", took, most), []history.Call{*call}})
	}
}

// stood returns how long its process or the machine was frozen while call was under
// way.
func (c *checker) stood(call *history.Call) (d time.Duration) {
	span := history.Span{From: call.Called, Until: call.Returned}
	for i := range c.h.Faults {
		if f := &c.h.Faults[i]; !history.OfNodes(f.Kind) && !history.OfPeers(f.Kind) && f.Target == call.Process {
			d += f.Overlap(span)
		}
	}
	for _, s := range c.h.Stalls {
		d += s.Overlap(span)
	}
	return d
}

const (
	recoveredFor = 3 * time.Second // how long calls must be decided after a recovery
	mostFailing  = 0.1             // share of failed calls in that time: instances that contend fail now and then
	afterProcess = 3 * time.Second // for a process that was restarted
)

// recoveries finds how long after all nodes were up calls still failed.
func (c *checker) recoveries() {
	for _, whole := range c.h.Whole {
		if whole.Until-whole.From < recoveredFor {
			continue
		}
		took := c.recovery(whole)
		c.f.Recovery = max(c.f.Recovery, took)
		if took > recoveryBound {
			c.f.add(Violation{Check: CheckRecovery, What: fmt.Sprintf("calls failed for %v after %.3f s, when all nodes were up",
				took, whole.From.Seconds())})
		}
	}
}

// recovery returns how long after the beginning of a span calls are decided: the whole span if they never are.
func (c *checker) recovery(whole history.Span) time.Duration {
	var calls []*history.Call
	for i := range c.h.Calls {
		call := &c.h.Calls[i]
		if whole.From <= call.Called && call.Returned <= whole.Until && !c.disturbed(call) {
			calls = append(calls, call)
		}
	}
	return decidedAfter(calls, whole)
}

// decidedAfter returns how long after the beginning of a span calls are decided.
func decidedAfter(calls []*history.Call, span history.Span) time.Duration {
	if recovered(calls, span.From) {
		return 0
	}
	for _, call := range calls {
		if !call.Decided() && recovered(calls, call.Called+1) {
			return call.Called + 1 - span.From
		}
	}
	return span.Until - span.From
}

// recovered reports whether nearly all calls in a while after from are decided.
func recovered(calls []*history.Call, from time.Duration) bool {
	all, failed := 0, 0
	for _, call := range calls {
		if from <= call.Called && call.Called < from+recoveredFor {
			all++
			if !call.Decided() {
				failed++
			}
		}
	}
	return float64(failed) <= mostFailing*float64(all)
}

// disturbed reports whether there was a fault of call's process then, or shortly
// before.
func (c *checker) disturbed(call *history.Call) bool {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		after := history.Span{From: f.From, Until: f.Until + afterProcess}
		if !history.OfNodes(f.Kind) && f.Target == call.Process && after.Meets(history.Span{From: call.Called, Until: call.Returned}) {
			return true
		}
	}
	return false
}
