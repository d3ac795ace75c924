package join

import (
	"context"
	"sync/atomic"
	"time"
)

// Group is calls that go to the service as one request.
type Group[V any] struct {
	queue *Queue[V]
	calls []*Call[V] // nil where a call was answered before the request ended
	open  int        // how many of calls have no answer yet
	len   int        // bytes of a batch of them, at most
	trace *Call[V]   // whose trace it is part of; nil: of none

	ctx     context.Context
	cancel  context.CancelCauseFunc
	callers atomic.Int32 // how many wait

	// The next are for the queue to tell which calls are alike.
	counts   [Slots]uint8 // how many demands each slot has
	most     uint8        // the greatest of counts
	slots    []Slot       // of all demands
	early    []Slot       // of calls that are answered already, and still marked as under way
	unmarked []Slot       // of calls that are answered already, and not marked any more
	alikeAt  time.Time    // when slowAlike or more alike calls were all answered early; zero: they were not
	replaced bool         // some calls are answered, and another group goes in this one's place
}

// Values returns the values of the calls, in their order.
func (g *Group[V]) Values() []V {
	values := make([]V, len(g.calls))
	for i, c := range g.calls {
		values[i] = c.Value
	}
	return values
}

// Len returns how many bytes of a batch the calls take at most.
func (g *Group[V]) Len() int { return g.len }

// Context ends when no caller waits any more. Its cause is a LeftError then. It has the values of the context
// of the call whose trace the group is part of, or of its only call.
func (g *Group[V]) Context() context.Context { return g.ctx }

// LeftError is the cause with which a Group's context ends once the last caller has left.
type LeftError struct{ Why error }

// Error returns the reason of the last caller.
func (e *LeftError) Error() string { return "nobody waits any more: " + e.Why.Error() }

// admits reports whether there is room for c, in maxLen bytes and beside at most alike calls
// like it.
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

// seal ends the adding of calls.
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

// leave notes that a caller does not wait any more. The request ends with the last.
func (g *Group[V]) leave(why error) {
	if g.callers.Add(-1) == 0 {
		g.cancel(&LeftError{why})
	}
}

// finish gives every call that has none yet its answer, or err.
func (g *Group[V]) finish(err error) {
	g.cancel(nil)
	for _, c := range g.calls {
		if c != nil {
			c.finish(err)
		}
	}
}

// Waiting reports whether the call at index i is there and has no answer yet. Send calls it.
func (g *Group[V]) Waiting(i int) bool { return i >= 0 && i < len(g.calls) && g.calls[i] != nil }

// Open returns how many calls have no answer yet. Send calls it.
func (g *Group[V]) Open() int { return g.open }

// Answer tells the caller of the call at index i that its value has the answer: Send calls it
// for a call whose answer comes before the request ends. The value may be used by others from
// then on.
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

// Yield has another group go in the place of this one, if some of its calls are answered and
// others wait for longer. Send calls it after it has answered the calls that came so far.
func (g *Group[V]) Yield() {
	if g.open > 0 {
		g.queue.replace(g)
	}
}
