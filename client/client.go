package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// Client asks one ratelimitd, or several behind one address. It is safe for concurrent use;
// make one for a process with New.
type Client struct {
	routes  map[string]*url.URL
	opts    Options
	header  http.Header
	breaker *breaker
	traffic traffic
	spare   sync.Pool // of *asked, which nobody else knows
}

// New returns a client of the service at baseURL, such as http://127.0.0.1:8080. A nil opts
// means the zero Options. It asks nothing yet.
func New(baseURL string, opts *Options) (*Client, error) {
	base, err := url.Parse(baseURL)
	switch {
	case err != nil:
		return nil, errors.New("ratelimitd: the address is not a URL") // err repeats it, with a password perhaps
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, errors.New("ratelimitd: the address must begin with http:// or https:// and name a host")
	case base.User != nil || base.RawQuery != "" || base.Fragment != "":
		return nil, errors.New("ratelimitd: the address must have no user, query or fragment; Options.Header is for credentials")
	}
	if base.Path == "" {
		base.Path = "/"
	}
	c := &Client{routes: make(map[string]*url.URL), opts: opts.withDefaults()}
	for _, route := range []string{"check", "record", "take", "batch", "refund", "reset"} {
		c.routes[route] = base.JoinPath("v1", route)
	}
	if err := c.opts.check(); err != nil {
		return nil, err
	}
	c.header = c.opts.Header.Clone()
	if c.header == nil {
		c.header = make(http.Header)
	}
	c.header["Content-Type"] = []string{mediaJSON}
	c.header["Accept"] = []string{mediaJSON + ", " + mediaProblem}
	c.breaker = newBreaker(&c.opts)
	c.traffic = traffic{most: c.opts.Trips, max: max(maxTrips, c.opts.Trips), full: maxBatchOps, send: c.send}
	if c.opts.Alone {
		c.traffic.most, c.traffic.max, c.traffic.full = maxAlone, maxAlone, 1
	}
	c.traffic.start()
	c.spare.New = func() any { return &asked{done: make(chan struct{}, 1)} }
	return c, nil
}

func (o *Options) check() error {
	switch {
	case o.Timeout < 0 || o.Pause < 0 || o.Retries < 0 || o.Trips < 0:
		return errors.New("ratelimitd: an option is negative")
	case o.OnUnavailable != FailClosed && o.OnUnavailable != FailOpen:
		return fmt.Errorf("ratelimitd: OnUnavailable is %d, and neither FailClosed nor FailOpen", o.OnUnavailable)
	}
	return nil
}

// Close waits until the calls that were made are answered, and closes idle connections.
// Further calls give ErrClosed.
func (c *Client) Close() error {
	c.traffic.close()
	if t, ok := c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
	return nil
}

// Check asks whether demands would be allowed now, and records nothing.
func (c *Client) Check(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpCheck, Demands: demands})
}

// Record records demands, whatever the limits, and tells where that leaves them.
func (c *Client) Record(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpRecord, Demands: demands})
}

// Take checks and records demands as one step: all are recorded, or none is.
func (c *Client) Take(ctx context.Context, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpTake, Demands: demands})
}

// Reserve checks demands and, if they are allowed, holds their units for so long. A Settle of
// the Decision's Reservation makes them count; without one they are free again in time.
func (c *Client) Reserve(ctx context.Context, hold time.Duration, demands ...Demand) (Decision, error) {
	return c.Do(ctx, Call{Op: OpCheck, Demands: demands, Reserve: hold})
}

// Settle records what a Reserve holds.
func (c *Client) Settle(ctx context.Context, reservation string) (Decision, error) {
	return c.Do(ctx, Call{Op: OpRecord, Reservation: reservation})
}

// Do makes one call. Its error is a *CallError: a denial is none.
func (c *Client) Do(ctx context.Context, call Call) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, &CallError{string(call.Op), RecordedNo, err}
	}
	a := c.spare.Get().(*asked)
	if err := c.write(a, call); err != nil {
		return Decision{}, &CallError{string(call.Op), RecordedNo, err}
	}
	a.begin(ctx, c.opts.Timeout)
	d, kept, err := c.tries(ctx, a)
	a.timer.Stop()
	if kept {
		a.forget()
		c.spare.Put(a)
	}
	return c.outcome(&call, d, err)
}

// outcome returns what the caller of call is given: d, or what err makes of it.
func (c *Client) outcome(call *Call, d Decision, err *CallError) (Decision, error) {
	switch {
	case err == nil:
		return d, nil
	case c.opts.OnUnavailable == FailOpen && nobodyDecided(err.Err):
		return call.failOpen(err.Recorded), nil
	}
	return Decision{}, err
}

// nobodyDecided reports whether err says that the service is gone, rather than that it
// answered: a 503 of its own is a policy's on_store_error.
func nobodyDecided(err error) bool {
	if p := (*Problem)(nil); errors.As(err, &p) && p.Status == http.StatusServiceUnavailable {
		return false
	}
	return errors.Is(err, ErrUnavailable)
}
