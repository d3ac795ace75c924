package client

import (
	"cmp"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// OnUnavailable says what a call gives while no ratelimitd answers.
type OnUnavailable int

// The choices.
const (
	// FailClosed gives an error that is ErrUnavailable.
	FailClosed OnUnavailable = iota
	// FailOpen gives a Decision that allows and is Degraded. It is for a service that is gone
	// or late: what a service that answers denies, or cannot decide by its policy's
	// on_store_error, stands.
	FailOpen
)

// Options of a Client. The zero value suits most.
type Options struct {
	Timeout       time.Duration // of a call, with all its tries; zero: DefaultTimeout
	OnUnavailable OnUnavailable // what a call gives while no ratelimitd answers; zero: an error

	// Retries is how often a call that was not answered is tried again, where that cannot
	// count twice. If it is not zero, the client gives takes and records an idempotency key, as
	// one whose answer was lost may have counted; the service keeps these keys, at some cost.
	Retries int

	// Trips is how many requests with calls go at the same time before further calls gather;
	// zero: DefaultTrips.
	Trips int
	// Alone sends every call as a request of its own.
	Alone bool

	Failures uint32        // in a row, after which calls fail at once until a probe succeeds; zero: DefaultFailures
	Pause    time.Duration // between that and a probe; zero: DefaultPause

	Header    http.Header       // sent with every request, for what is between here and the service; nil: nothing
	Transport http.RoundTripper // of requests; nil: NewTransport()
	Logger    *slog.Logger      // a line when the service goes and comes back; nil: logs nothing
}

// Defaults of Options.
const (
	// DefaultTimeout is well over the service's own store timeout of 500 ms, so that its
	// answer about a slow store arrives.
	DefaultTimeout = 2 * time.Second
	// DefaultTrips keeps the service busy while answers travel; with more, trips are less full
	// and cost it more.
	DefaultTrips    = 2
	DefaultFailures = 5           // fewer may be one instance's restart
	DefaultPause    = time.Second // so that calls are decided again within seconds of the service's return
)

func (o *Options) withDefaults() Options {
	d := Options{}
	if o != nil {
		d = *o
	}
	d.Timeout = cmp.Or(d.Timeout, DefaultTimeout)
	d.Trips = cmp.Or(d.Trips, DefaultTrips)
	d.Failures = cmp.Or(d.Failures, DefaultFailures)
	d.Pause = cmp.Or(d.Pause, DefaultPause)
	if d.Transport == nil {
		d.Transport = NewTransport()
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	return d
}

// Defaults of the transport.
const (
	dialTimeout = time.Second            // a service within a network answers in milliseconds
	idleTimeout = 90 * time.Second       // shorter than the service's two minutes, so that this end closes first
	keepAlive   = 15 * time.Second       // finds out about a host that is gone
	maxIdle     = 2 * maxTrips           // for requests that are waited for, and as many that trail behind
	maxHeaders  = 64 << 10               // bytes: an answer has a kilobyte
	continueFor = 100 * time.Millisecond // a server that says nothing gets the body all the same
)

// NewTransport returns the transport of a Client that is given none, for callers who change
// something of it, such as TLS.
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
