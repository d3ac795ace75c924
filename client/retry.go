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
	firstWait = 50 * time.Millisecond // an instance that is restarted is back, or another one has its address
	maxWait   = time.Second
)

// tries counts how often a call is tried.
type tries struct {
	left  int
	wait  time.Duration // before the next, where the service says nothing
	until time.Time     // when the call's time is over; only where there are tries left
}

func (c *Client) newTries() tries {
	t := tries{left: c.opts.Retries, wait: firstWait}
	if t.left > 0 {
		t.until = time.Now().Add(c.opts.Timeout)
	}
	return t
}

// again waits until it is time for another try. It returns false if there is none: err is not temporary, or the call's
// time, of which timeout receives the end, would be over.
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

// waitAfter returns how long to wait after err: as long as the service says, and longer by
// chance, so that callers that failed together don't come back together. 0: waiting does not
// help.
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

// ofConnection reports whether the connection failed, and not the call's time or this end.
func (e *noAnswerError) ofConnection() bool {
	for _, other := range []error{errTimeout, circuit.ErrOpen, join.ErrFull, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(e.cause, other) {
			return false
		}
	}
	return true
}
