package client

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/ratelimitd/ratelimitd/client/internal/circuit"
	"github.com/ratelimitd/ratelimitd/client/internal/join"
)

// OnUnavailable selects the result of calls while no ratelimitd answers.
type OnUnavailable int

// The choices.
const (
	// FailClosed gives an error that is ErrUnavailable.
	FailClosed OnUnavailable = iota
	// FailOpen gives a Decision that allows and is Degraded. It is for a service that is gone or late: an answer of the
	// service stands, even one by on_store_error. Each such call is counted (Client.FailedOpen) and reported
	// (Options.FailedOpen), and logged at most once a second.
	FailOpen
)

// Options of a Client. The zero value suits most.
type Options struct {
	Timeout       time.Duration // of a call, with all its tries; zero: DefaultTimeout
	OnUnavailable OnUnavailable // the result of calls while no ratelimitd answers; zero: FailClosed

	// FailedOpen is called with every call that FailOpen allowed, with its policies and identifiers, and with the
	// *CallError that it would have returned. It is called on the goroutine of the call, and must not block. It may be
	// nil.
	FailedOpen func(call Call, err error)

	// Retries is how often a call that was not answered is tried again, where that cannot
	// count twice. If it is not zero, the client gives takes and records an idempotency key, as
	// one whose answer was lost may have counted; the service keeps these keys, at some cost.
	Retries int

	// Concurrency is how many requests with calls go at the same time before further calls wait
	// and share one; zero: DefaultConcurrency. More go only while earlier ones are late.
	Concurrency int
	// DisableBatching sends every call as a request of its own, up to 256 at a time.
	DisableBatching bool

	MaxFailures   uint32        // in a row, after which calls fail at once until a probe succeeds; zero: DefaultMaxFailures
	ProbeInterval time.Duration // between that and a probe, and between probes; zero: DefaultProbeInterval

	Header    http.Header       // sent with every request, for proxies in front of the service; nil: nothing
	Transport http.RoundTripper // of requests; nil: NewTransport()
	Logger    *slog.Logger      // a line when the service goes and comes back, and a second of FailOpen; nil: slog.Default()
}

// Defaults of Options.
const (
	// DefaultTimeout is well over the service's own store timeout of 500 ms, so that its
	// answer about a slow store arrives.
	DefaultTimeout = 2 * time.Second
	// DefaultConcurrency keeps the service busy while answers travel; with more, requests have
	// fewer calls and cost it more.
	DefaultConcurrency   = 2
	DefaultMaxFailures   = 5           // fewer may be one instance's restart
	DefaultProbeInterval = time.Second // so that calls are decided again within seconds of the service's return
)

// maxUnbatched is how many requests go at the same time where calls don't share them.
const maxUnbatched = 256

func (o *Options) withDefaults() Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	d.Timeout = cmp.Or(d.Timeout, DefaultTimeout)
	d.Concurrency = cmp.Or(d.Concurrency, DefaultConcurrency)
	d.MaxFailures = cmp.Or(d.MaxFailures, DefaultMaxFailures)
	d.ProbeInterval = cmp.Or(d.ProbeInterval, DefaultProbeInterval)
	if d.Transport == nil {
		d.Transport = NewTransport()
	}
	d.Logger = cmp.Or(d.Logger, slog.Default())
	return d
}

// check returns an error if o is invalid.
func (o *Options) check() error {
	switch {
	case o.Timeout < 0:
		return errors.New("ratelimitd: Options.Timeout is negative")
	case o.ProbeInterval < 0:
		return errors.New("ratelimitd: Options.ProbeInterval is negative")
	case o.Retries < 0:
		return errors.New("ratelimitd: Options.Retries is negative")
	case o.Concurrency < 0:
		return errors.New("ratelimitd: Options.Concurrency is negative")
	case o.OnUnavailable != FailClosed && o.OnUnavailable != FailOpen:
		return fmt.Errorf("ratelimitd: Options.OnUnavailable is %d: it must be FailClosed or FailOpen", o.OnUnavailable)
	}
	return nil
}

func (o *Options) circuit() circuit.Options {
	return circuit.Options{
		MaxFailures: o.MaxFailures, ProbeInterval: o.ProbeInterval,
		Answered: func(err error) bool { _, ok := errors.AsType[*Problem](err); return ok },
		OnOpen: func() {
			o.Logger.Error("ratelimitd does not answer: Options.OnUnavailable decides calls", "failures", o.MaxFailures)
		},
		OnClose: func() { o.Logger.Info("ratelimitd answers again") },
	}
}

// Defaults of the transport.
const (
	dialTimeout = time.Second            // a service within a network answers in milliseconds
	idleTimeout = 90 * time.Second       // shorter than the service's two minutes, so that this end closes first
	keepAlive   = 15 * time.Second       // finds out about a host that is gone
	maxIdle     = 2 * join.MaxRequests   // for requests that are waited for, and as many that others went in place of
	maxHeaders  = 64 << 10               // bytes: an answer has a kilobyte
	continueFor = 100 * time.Millisecond // a server that says nothing gets the body all the same
)

// NewTransport returns the default transport of a Client, for callers that change a part of it, such as TLS.
func NewTransport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext,
		TLSHandshakeTimeout:    dialTimeout,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		ExpectContinueTimeout:  continueFor,
		MaxResponseHeaderBytes: maxHeaders,
		DisableCompression:     true, // answers travel within a data centre
		ForceAttemptHTTP2:      true, // where it is TLS
	}
}
