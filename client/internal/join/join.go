// Package join lets concurrent calls share requests.
//
// A call that is alone goes at once. While some requests are under way, further calls wait in a Queue, and go as one
// Group as soon as a request has returned. Alike calls, those of the same policy and identifier, share a request only
// as far as that makes none of them slower.
//
// The package decides which calls go together and when. It knows neither calls, requests nor answers, which are
// Options.Send's.
package join

import (
	"context"
	"errors"
	"sync/atomic"
)

// Reasons why a call is not sent. It is certain that it has not reached the service.
var (
	ErrClosed = errors.New("the queue is closed")
	ErrFull   = errors.New("too many calls wait")
)

// Call is one call until its caller has an answer, or has left. Make one with NewCall. Set Len, Slots, Context and
// Trace before each Enter.
type Call[V any] struct {
	Value   V               // the question; Send adds the answer
	Len     int             // its maximum bytes in a batch
	Slots   []Slot          // of its demands
	Context context.Context // the caller's
	Trace   Trace           // of Context

	done  chan struct{} // receives when there is an answer or err
	err   error         // why there is no answer; nil: there is one
	group *Group[V]     // the group with which it is sent; nil: it waits
	state atomic.Int32

	before, after *Call[V] // in the queue
}

// Trace says whether a call is part of a trace. A group is part of one trace: that of its first sampled call, or else
// of its first call with a trace.
type Trace uint8

// The kinds of traces.
const (
	Untraced  Trace = iota
	Unsampled       // not recorded; its requests say so
	Sampled
)

// States of a Call.
const (
	waiting  int32 = iota // in the queue; changed under its lock only
	sent                  // the first to change this state decides whether the call is answered or left
	answered              // or has failed
	left                  // its caller does not wait any longer
)

// NewCall returns a call for value.
func NewCall[V any](value V) *Call[V] {
	return &Call[V]{Value: value, done: make(chan struct{}, 1)}
}

// Done receives once after each Enter that returned nil, when the call is answered or has failed, unless a Leave took
// the call out.
func (c *Call[V]) Done() <-chan struct{} { return c.done }

// Err returns why the call has no answer, nil if it has one. It may be read after Done.
func (c *Call[V]) Err() error { return c.err }

// Reset prepares the call for another Enter. It must not be under way.
func (c *Call[V]) Reset() { c.Context, c.err, c.group = nil, nil, nil }

// finish tells the caller that there is an answer, or err. It returns false if the caller has left.
func (c *Call[V]) finish(err error) bool {
	c.err = err
	if !c.state.CompareAndSwap(sent, answered) {
		return false
	}
	c.done <- struct{}{}
	return true
}

// list has the waiting calls in the order of their arrival. The zero value is empty.
type list[V any] struct {
	first, last *Call[V]
	len         int
}

func (l *list[V]) push(c *Call[V]) {
	c.before, c.after = l.last, nil
	if l.last == nil {
		l.first = c
	} else {
		l.last.after = c
	}
	l.last = c
	l.len++
}

func (l *list[V]) remove(c *Call[V]) {
	if c.before == nil {
		l.first = c.after
	} else {
		c.before.after = c.after
	}
	if c.after == nil {
		l.last = c.before
	} else {
		c.after.before = c.before
	}
	c.before, c.after = nil, nil
	l.len--
}
