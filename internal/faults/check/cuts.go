package check

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// cuts holds that calls are decided again soon after processes were cut off from each other, while that
// lasts and all nodes are up, and that keys have owners again in the end.
func (c *checker) cuts() {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		if !history.OfPeers(f.Kind) {
			continue
		}
		for _, whole := range c.h.Whole {
			span := history.Span{From: max(f.From, whole.From), Until: min(f.Until, whole.Until)}
			if span.Until-span.From < cutBound+recoveredFor {
				continue // too short to tell
			}
			took := decidedAfter(c.callsOf(span), span)
			c.f.Cut = max(c.f.Cut, took)
			if took > cutBound {
				c.f.add(Violation{Check: CheckCut, What: fmt.Sprintf("%s: %d, at %.3f s, when all nodes were up: calls failed for %v",
					f.Kind, f.Target, span.From.Seconds(), took)})
			}
		}
	}
	if c.h.Owners != nil && c.h.Owners.Wrong != "" {
		c.f.add(Violation{Check: CheckCut, What: c.h.Owners.Wrong})
	}
}

// callsOf returns the calls that were made and answered within span.
func (c *checker) callsOf(span history.Span) (calls []*history.Call) {
	for i := range c.h.Calls {
		if call := &c.h.Calls[i]; span.From <= call.Called && call.Returned <= span.Until {
			calls = append(calls, call)
		}
	}
	return calls
}
