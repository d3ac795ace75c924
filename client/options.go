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
	// FailClosed returns an error that wraps ErrUnavailable.
	FailClosed OnUnavailable = iota
	// FailOpen returns a Decision that allows and is Degraded, if the service is down or late. An answer of the service
	// stands, even one by on_store_error. Each call that FailOpen allows is counted (Client.FailedOpen) and reported
	// (Options.FailedOpen), and logged at most once a second.
	FailOpen
)

// Options of a Client. The zero value suits most uses.
type Options struct {
	Timeout       time.Duration // of a call, including all its tries; zero: DefaultTimeout
	OnUnavailable OnUnavailable // the result of calls while no ratelimitd answers; zero: FailClosed

	// FailedOpen is called with every call that FailOpen allowed, with its policies and identifiers, and with the
	// *CallError that it would have returned. It is called on the goroutine of the call, and must not block. It may be
	// nil.
	FailedOpen func(call Call, err error)

	// Retries is the number of further tries of a call that was not answered, if they can't count twice. If it is not
	// zero, the client adds an idempotency key to takes and records, as an attempt whose answer was lost may have
	// counted. Keeping these keys costs the service some work.
	Retries int

	// Concurrency is the number of requests with calls under way from which further calls wait and share a request;
	// zero: DefaultConcurrency. There are more requests only while earlier ones are late.
	Concurrency int
	// DisableBatching sends every call as a request of its own, up to 256 at a time.
	DisableBatching bool

	MaxFailures   uint32        // failures in a row after which calls fail at once until a probe succeeds; zero: DefaultMaxFailures
	ProbeInterval time.Duration // between these failures and a probe, and between probes; zero: DefaultProbeInterval

	Header    http.Header       // sent with every request, for proxies in front of the service; nil: none
	Transport http.RoundTripper // makes the requests; nil: NewTransport()
	Logger    *slog.Logger      // logs the service's loss and return, and FailOpen once a second; nil: slog.Default()
}

// Defaults of Options.
const (
	// DefaultTimeout is well above the service's own store timeout of 500 ms, so that its answer about a slow store
	// arrives in time.
	DefaultTimeout = 2 * time.Second
	// DefaultConcurrency keeps the service busy while answers travel. With more, requests have fewer calls, and cost
	// the service more.
	DefaultConcurrency   = 2
	DefaultMaxFailures   = 5           // fewer may be the restart of one instance
	DefaultProbeInterval = time.Second // calls are decided again within seconds of the service's return
)

// maxUnbatched is the number of concurrent requests under DisableBatching.
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
	dialTimeout = time.Second            // a service in the same network answers in milliseconds
	idleTimeout = 90 * time.Second       // less than the service's two minutes, so that this end closes first
	keepAlive   = 15 * time.Second       // detects a host that is gone
	maxIdle     = 2 * join.MaxRequests   // for requests under way, and as many that others replaced
	maxHeaders  = 64 << 10               // bytes: an answer's are about a kilobyte
	continueFor = 100 * time.Millisecond // then the body is sent without an answer to Expect
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
		ForceAttemptHTTP2:      true, // over TLS
	}
}
