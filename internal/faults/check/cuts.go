package check

import (
	"fmt"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// cuts checks that calls are decided again soon after processes were cut off from each other, even before the cut ends,
// if no node is frozen or slow, and that keys finally have owners again.
func (c *checker) cuts() {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		if !history.OfPeers(f.Kind) {
			continue
		}
		span := c.undisturbed(f.Span)
		if span.Until-span.From < cutBound+recoveredFor/2 {
			continue // too short to judge
		}
		took := decidedAfter(c.callsOf(span), span)
		c.f.Cuts, c.f.Cut = c.f.Cuts+1, max(c.f.Cut, took)
		if took > cutBound {
			c.f.add(Violation{Check: CheckCut, What: fmt.Sprintf("%s: %d, at %.3f s: calls failed for %v",
				f.Kind, f.Target, span.From.Seconds(), took)})
		}
	}
	if c.h.Owners != nil && c.h.Owners.Wrong != "" {
		c.f.add(Violation{Check: CheckCut, What: c.h.Owners.Wrong})
	}
}

// undisturbed returns the part of span in which no node is frozen or slow, or was shortly before. Killed nodes
// do not matter.
func (c *checker) undisturbed(span history.Span) history.Span {
	for i := range c.h.Faults {
		f := &c.h.Faults[i]
		after := history.Span{From: f.From, Until: f.Until + recoveredFor}
		switch {
		case !history.OfNodes(f.Kind) || f.Kind == history.NodeKill || !after.Meets(span):
		case f.From <= span.From:
			span.From = after.Until
		default:
			span.Until = min(span.Until, f.From)
		}
	}
	return span
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
