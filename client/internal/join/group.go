package join

import (
	"context"
	"sync/atomic"
	"time"
)

// Group has the calls of one request.
type Group[V any] struct {
	queue *Queue[V]
	calls []*Call[V] // nil where a call was answered before the request ended
	open  int        // number of calls without an answer
	len   int        // maximum bytes of a batch of calls
	trace *Call[V]   // the call whose trace it is part of; nil: none

	ctx     context.Context
	cancel  context.CancelCauseFunc
	callers atomic.Int32 // number that wait

	// Fields of the queue, about alike calls.
	counts   [Slots]uint8 // number of demands in each slot
	most     uint8        // the largest of counts
	slots    []Slot       // of all demands
	early    []Slot       // of calls that were answered before the request ended, and still count as under way
	unmarked []Slot       // of such calls that no longer count as under way
	alikeAt  time.Time    // when slowAlike or more alike calls were all answered before the request ended; zero: they were not
	replaced bool         // some calls are answered, and another group has replaced this one
}

// Values returns the values of the calls, in their order.
func (g *Group[V]) Values() []V {
	values := make([]V, len(g.calls))
	for i, c := range g.calls {
		values[i] = c.Value
	}
	return values
}

// Len returns the maximum bytes of a batch of the calls.
func (g *Group[V]) Len() int { return g.len }

// Context ends when no caller waits any longer. Its cause is a LeftError then. It has the values of the context of the
// call whose trace the group is part of, or of its only call.
func (g *Group[V]) Context() context.Context { return g.ctx }

// LeftError is the cause with which a Group's context ends once the last caller has left.
type LeftError struct{ Why error }

// Error returns the reason of the last caller.
func (e *LeftError) Error() string { return "nobody waits any more: " + e.Why.Error() }

// admits reports whether there is room for c, within maxLen bytes and at most alike calls like it.
func (g *Group[V]) admits(c *Call[V], maxLen, alike int) bool {
	if len(g.calls) == 0 {
		return true
	}
	if g.len+c.Len > maxLen {
		return false
	}
	for _, s := range c.Slots {
		if int(g.counts[s]) >= alike {
			return false
		}
	}
	return true
}

// hasAlike reports whether the group has a call like c.
func (g *Group[V]) hasAlike(c *Call[V]) bool {
	for _, s := range c.Slots {
		if g.counts[s] > 0 {
			return true
		}
	}
	return false
}

func (g *Group[V]) add(c *Call[V]) {
	g.calls = append(g.calls, c)
	g.len += c.Len
	for _, s := range c.Slots {
		g.counts[s]++
		g.most = max(g.most, g.counts[s])
	}
	g.slots = append(g.slots, c.Slots...)
	if c.Trace > Untraced && (g.trace == nil || c.Trace > g.trace.Trace) {
		g.trace = c
	}
	c.group = g
	c.state.Store(sent)
}

// seal completes the group: no call is added any more.
func (g *Group[V]) seal() {
	g.open = len(g.calls)
	g.callers.Store(int32(len(g.calls)))
	parent := context.Background()
	if len(g.calls) == 1 {
		parent = context.WithoutCancel(g.calls[0].Context)
	} else if g.trace != nil {
		parent = context.WithoutCancel(g.trace.Context)
	}
	g.ctx, g.cancel = context.WithCancelCause(parent)
}

// leave notes that a caller does not wait any longer. The request ends with the last one.
func (g *Group[V]) leave(why error) {
	if g.callers.Add(-1) == 0 {
		g.cancel(&LeftError{why})
	}
}

// finish completes every call that has no answer yet, with err.
func (g *Group[V]) finish(err error) {
	g.cancel(nil)
	for _, c := range g.calls {
		if c != nil {
			c.finish(err)
		}
	}
}

// Waiting reports whether the group has a call at index i that waits for its answer. Send calls it.
func (g *Group[V]) Waiting(i int) bool { return i >= 0 && i < len(g.calls) && g.calls[i] != nil }

// Open returns the number of calls without an answer. Send calls it.
func (g *Group[V]) Open() int { return g.open }

// Answer tells the caller of the call at index i that its value has the answer. Send calls it for a call that is
// answered before the request ends, and must not use the value afterwards.
func (g *Group[V]) Answer(i int) {
	c := g.calls[i]
	g.calls[i] = nil
	g.open--
	for _, s := range c.Slots {
		if g.counts[s] >= slowAlike {
			g.alikeAt = time.Now()
		}
	}
	g.early = append(g.early, c.Slots...)
	if c.finish(nil) && g.callers.Add(-1) == 0 && g.open > 0 {
		g.cancel(&LeftError{context.Canceled})
	}
}

// Yield lets another group replace this one, if some of its calls are answered and others wait longer. Send calls it
// after it has answered the calls so far.
func (g *Group[V]) Yield() {
	if g.open > 0 {
		g.queue.replace(g)
	}
}
