package client

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/throttle"
)

// failedOpen counts calls that FailOpen allowed.
type failedOpen struct {
	calls atomic.Uint64
	log   throttle.Second
}

// FailedOpen returns the number of calls that FailOpen allowed without a decision: a metric that should stay at 0.
//
//	expvar.Publish("ratelimit_failed_open", expvar.Func(func() any { return limits.FailedOpen() }))
func (c *Client) FailedOpen() uint64 { return c.failedOpen.calls.Load() }

// unanswered returns the result of a call that failed with err: FailOpen's decision, if the service did not answer and
// the client fails open.
func (c *Client) unanswered(call *Call, err *CallError) (Decision, error) {
	if c.opts.OnUnavailable != FailOpen || call.Op == OpConfirm || !nobodyDecided(err.Err) {
		return Decision{}, err
	}
	total := c.failedOpen.calls.Add(1)
	d := call.failOpen(err.Recorded)
	if c.opts.FailedOpen != nil {
		c.opts.FailedOpen(*call, err)
	}
	if c.failedOpen.log.Allow(time.Now()) {
		c.opts.Logger.Error("ratelimitd does not decide: calls are allowed without a limit",
			"policy", d.Policy, "error", err, "failed_open", total)
	}
	return d, nil
}

// nobodyDecided reports whether err says that the service did not answer. A 503 of the service itself is a decision by
// on_store_error.
func nobodyDecided(err error) bool {
	if p, ok := errors.AsType[*Problem](err); ok && p.Status == http.StatusServiceUnavailable {
		return false
	}
	return errors.Is(err, ErrUnavailable)
}

// failOpen returns the decision of a call that the service did not decide.
func (c *Call) failOpen(recorded Recorded) Decision {
	d := Decision{Allowed: true, WouldAllow: true, Degraded: true, Recorded: recorded}
	if len(c.Demands) > 0 {
		d.Policy = c.Demands[0].Policy
	}
	if len(c.Demands) < 2 {
		return d
	}
	demands := make([]Decision, len(c.Demands))
	for i := range demands {
		demands[i] = d
		demands[i].Policy = c.Demands[i].Policy
	}
	d.Demands = demands
	return d
}
