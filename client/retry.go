package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/circuit"
	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// Bounds of the waits between tries.
const (
	firstWait = 50 * time.Millisecond // enough for the restart of an instance, or for another one to get its address
	maxWait   = time.Second
)

// tries counts the tries of a call.
type tries struct {
	left  int
	wait  time.Duration // before the next try, unless the service says otherwise
	until time.Time     // the end of the call's time; set only while tries are left
}

func (c *Client) newTries() tries {
	t := tries{left: c.opts.Retries, wait: firstWait}
	if t.left > 0 {
		t.until = time.Now().Add(c.opts.Timeout)
	}
	return t
}

// again waits until another try is due. It returns false if there is none, because err is not temporary or the call's
// time would be over; timeout receives at its end.
func (t *tries) again(ctx context.Context, err error, timeout <-chan time.Time) bool {
	wait := t.waitAfter(err)
	if t.left == 0 || wait == 0 || !time.Now().Add(wait).Before(t.until) {
		return false
	}
	t.left--
	t.wait = min(2*t.wait, maxWait)
	pause := time.NewTimer(wait)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
	case <-timeout:
	}
	return false
}

// waitAfter returns the wait after err: the service's Retry-After, plus a random part, so that callers that failed
// together don't return together. 0 means that waiting does not help.
func (t *tries) waitAfter(err error) time.Duration {
	var problem *Problem
	var foreign foreignError
	var lost *noAnswerError
	switch {
	case errors.As(err, &problem) && problem.Status == http.StatusServiceUnavailable && problem.RetryAfter > 0:
		return between(problem.RetryAfter, problem.RetryAfter*3/2)
	case errors.As(err, &foreign) && foreign.Status == http.StatusServiceUnavailable && foreign.RetryAfter > 0:
		return between(foreign.RetryAfter, foreign.RetryAfter*3/2)
	case errors.As(err, &lost) && lost.ofConnection():
		return between(t.wait/2, t.wait)
	}
	return 0
}

func between(least, most time.Duration) time.Duration {
	return least + rand.N(most-least+1)
}

// ofConnection reports whether the connection failed, rather than the call's time or this end.
func (e *noAnswerError) ofConnection() bool {
	for _, other := range []error{errTimeout, circuit.ErrOpen, join.ErrFull, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(e.cause, other) {
			return false
		}
	}
	return true
}
