// Package proxy is a reverse proxy that limits requests, bytes both ways, and units that the application reports, by
// the policies of a limiter.Engine.
//
// Parse reads routes and their limits from a file. Denials are answered as in package api. The package does not know
// where counts are kept.
package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/throttle"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// DefaultUpstreamTimeout is the time for an application to begin its answer, half of nginx's default.
const DefaultUpstreamTimeout = 30 * time.Second

// DefaultStalled is the time for a client to send the next part of a body, or to receive the next part of an answer, as
// in nginx. Whole bodies have no bound.
const DefaultStalled = time.Minute

// DefaultMaxRequests is the default maximum of requests in progress. With connections and buffers on both sides, they
// take some 400 MiB.
const DefaultMaxRequests = 1 << 12

// Full is the bound of requests in progress. HTTP/2 has many on one connection.
const Full connections.Bound = "requests"

// Options of a Proxy. Upstream is required.
type Options struct {
	Upstream        *url.URL              // http, https, or h2c for HTTP/2 without TLS
	UpstreamTimeout time.Duration         // until the headers of an answer; 0: DefaultUpstreamTimeout
	Stalled         time.Duration         // how long nothing of a body may pass a client's connection; 0: DefaultStalled
	Routes          []Route               // the first that matches a request is its route; none: it passes
	TrustedProxies  origin.Proxies        // whose X-Forwarded headers are believed, and passed on
	KeepHeaders     []string              // passed on though they override a request's method or path; see ParseKeepHeaders
	MaxRequests     int                   // maximum in progress, and of connections to the application; 0: DefaultMaxRequests
	Headers         encode.HeaderFamilies // of answers; zero: encode.HeadersDefault
	Logger          *slog.Logger          // nil: nothing is logged
	Now             func() time.Time      // for durations only; nil: time.Now

	// Reached is called for every request that Full turns away. It must not block, and may be nil.
	Reached func(connections.Bound)

	// Observe is called after every request, with the name of its route, or RouteNone, and the id of its trace if it is
	// sampled. It must not block, and may be nil.
	Observe func(route string, status int, d time.Duration, trace string)

	Tracer *tracing.Tracer // begins spans of requests and decisions; nil: nothing is traced
}

// RouteNone is reported for a request that matches no route.
const RouteNone = "none"

// Proxy is an http.Handler; make one with New. It is safe for concurrent use.
type Proxy struct {
	engine   *limiter.Engine
	opts     Options
	reverse  httputil.ReverseProxy
	counted  headerNames
	dropped  headerNames
	limits   headerNames // that bring limits
	logged   throttle.Lines
	underWay atomic.Int64 // requests in progress

	stopped context.Context // ends upgraded connections
	stop    context.CancelFunc
	serving sync.RWMutex // read-locked by every request until it is counted
}

// New returns a proxy that asks engine.
func New(engine *limiter.Engine, opts *Options) (*Proxy, error) {
	p := &Proxy{engine: engine, opts: *opts}
	p.opts.UpstreamTimeout = cmp.Or(p.opts.UpstreamTimeout, DefaultUpstreamTimeout)
	p.opts.MaxRequests = cmp.Or(p.opts.MaxRequests, DefaultMaxRequests)
	p.opts.Stalled = cmp.Or(p.opts.Stalled, DefaultStalled)
	p.opts.Logger = cmp.Or(p.opts.Logger, slog.New(slog.DiscardHandler))
	if p.opts.Now == nil {
		p.opts.Now = time.Now
	}
	for i := range p.opts.Routes {
		p.opts.Routes[i].prepare()
	}
	p.counted = countedBy(p.opts.Routes)
	p.dropped = dropped(p.counted, p.opts.KeepHeaders)
	var err error
	if p.limits, err = limitHeaders(p.opts.Routes, p.opts.TrustedProxies); err != nil {
		return nil, err
	}
	transport, err := newTransport(&p.opts)
	if err != nil {
		return nil, err
	}
	p.reverse = httputil.ReverseProxy{
		Rewrite:        p.rewrite,
		Transport:      transport,
		FlushInterval:  -1, // streams are passed on as they come
		BufferPool:     new(buffers),
		ErrorLog:       p.brokenOff(),
		ModifyResponse: func(res *http.Response) error { passageOf(res.Request).answered(res); return nil },
		ErrorHandler:   p.failed,
	}
	p.stopped, p.stop = context.WithCancel(context.Background())
	return p, nil
}

// Bounds of connections to the application.
const (
	dialTimeout      = 5 * time.Second
	idleUpstream     = 256 // connections kept
	idleUpstreamFor  = 90 * time.Second
	maxAnswerHeaders = 1 << 20
)

// newTransport returns the transport to the application. It ignores the environment's settings of proxies.
func newTransport(opts *Options) (*http.Transport, error) {
	protocols := new(http.Protocols)
	upstream := *opts.Upstream
	switch upstream.Scheme {
	case "http":
		protocols.SetHTTP1(true)
	case "https":
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(true)
	case "h2c":
		protocols.SetUnencryptedHTTP2(true)
		upstream.Scheme = "http"
	default:
		return nil, fmt.Errorf("an upstream is http, https or h2c, not %.16q", upstream.Scheme)
	}
	opts.Upstream = &upstream
	return &http.Transport{
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		Protocols:              protocols,
		MaxConnsPerHost:        opts.MaxRequests,
		MaxIdleConnsPerHost:    idleUpstream,
		IdleConnTimeout:        idleUpstreamFor,
		TLSHandshakeTimeout:    dialTimeout,
		ResponseHeaderTimeout:  opts.UpstreamTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswerHeaders,
		DisableCompression:     true, // bytes are passed on, and counted, as they are
	}, nil
}

// rewrite makes the request for the application. Its X-Forwarded-For has the known addresses: for a client that is not
// trusted, only that of the connection.
func (p *Proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.opts.Upstream)
	r.Out.URL.RawQuery = r.In.URL.RawQuery // httputil removes parts that the application may read differently from net/url
	p.keepTrailers(r)
	tracing.Inject(r.In.Context(), r.Out.Header)
	r.Out.Host = r.In.Host
	if p.opts.TrustedProxies.Trust(r.In.RemoteAddr) {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
		r.SetXForwarded()
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if said := r.In.Header.Get(name); said != "" {
				r.Out.Header.Set(name, said)
			}
		}
		return
	}
	r.Out.Header.Del("X-Real-Ip")
	r.SetXForwarded()
}

// ServeHTTP passes one request on, if nothing denies it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := p.opts.Now()
	r, span := p.opts.Tracer.Request(r)
	out := newWriter(w, p.opts.Stalled)
	x := &passage{proxy: p, request: r}
	dropHopByHop(r.Header, p.limits)
	if !p.opts.TrustedProxies.Trust(r.RemoteAddr) {
		p.limits.drop(r.Header)
	}
	p.counted.dropDisguised(r.Header)
	p.dropped.dropDisguised(r.Header)
	p.dropped.drop(r.Header)
	stayLimited(r)
	out.begin(r)
	p.serving.RLock()
	defer p.serving.RUnlock()
	defer func() {
		x.end()
		out.finish()
		status := cmp.Or(out.status, x.status)
		if p.opts.Observe != nil {
			p.opts.Observe(x.name(), status, p.opts.Now().Sub(start), span.SampledID())
		}
		span.Answered(r.Method, "proxy "+x.name(), status, nil)
	}()
	if !p.enter() {
		encode.WriteError(out, store.ErrOverloaded)
		return
	}
	defer p.underWay.Add(-1)
	wrong := ""
	if x.route, wrong = p.routeFor(r); wrong != "" {
		encode.WriteStatus(out, http.StatusBadRequest, wrong)
		return
	}
	if x.admit(out) {
		p.pass(out, r, x)
	}
}

// enter reports whether there is room for one more request.
func (p *Proxy) enter() bool {
	if p.underWay.Add(1) <= int64(p.opts.MaxRequests) {
		return true
	}
	p.underWay.Add(-1)
	if p.opts.Reached != nil {
		p.opts.Reached(Full)
	}
	return false
}

// routeFor returns the route of r, which must be the same for all meanings of its path, or a sentence on a mistake in
// r.
func (p *Proxy) routeFor(r *http.Request) (route *Route, wrong string) {
	if r.Method == http.MethodConnect {
		return nil, "This proxy does not connect clients to other hosts."
	}
	host, ok := hostname(r.Host)
	switch {
	case !ok && (r.Host != "" || r.ProtoAtLeast(1, 1)): // older clients may send none
		return nil, "The host is neither a name nor an address with at most a port: send one such as example.com:8080."
	case slices.ContainsFunc(decodings(r.URL.Path), hasControls):
		return nil, "The path has control characters in it: send it without."
	case strings.Contains(r.URL.RawQuery, " "): // by HTTP/2, which would end the target by HTTP/1.1
		return nil, "The query has a space in it: send %20."
	}
	for i, segments := range meaningsOf(r.URL) {
		if leadsAway(segments) {
			return nil, "The path leads elsewhere: send it without parts that are dots or blanks."
		}
		other := p.routeOf(r, host, trimmed(segments))
		if i > 0 && other != route {
			return nil, "The path has several meanings: send it without escaped slashes and percent signs, and without semicolons."
		}
		route = other
	}
	return route, ""
}

func (p *Proxy) routeOf(r *http.Request, host string, segments []string) *Route {
	for i := range p.opts.Routes {
		if p.opts.Routes[i].matches(r, host, segments) {
			return &p.opts.Routes[i]
		}
	}
	return nil
}

// upgrades reports whether r may become a connection with another protocol.
func upgrades(r *http.Request) bool { return r.Header.Get("Upgrade") != "" }

// stayLimited removes from r a request to upgrade its connection to another version of HTTP, or to TLS, whose requests
// would pass unseen. A server may answer without the upgrade (RFC 9110, section 7.8).
func stayLimited(r *http.Request) {
	asked := strings.ToLower(strings.Join(r.Header["Upgrade"], ","))
	if strings.Contains(asked, "h2") || strings.Contains(asked, "http/") || strings.Contains(asked, "tls/") {
		r.Header.Del("Upgrade")
		r.Header.Del("Http2-Settings")
	}
}

// pass passes r on to the application.
func (p *Proxy) pass(w *writer, r *http.Request, x *passage) {
	ctx := context.WithValue(r.Context(), passageKey{}, x)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.stopped, cancel)() // closing the connection would not end a request whose body is being sent
	r = r.WithContext(ctx)
	if r.ContentLength < 0 {
		_ = w.control.EnableFullDuplex() // a stream may be answered by one; HTTP/2 always may
	}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, passed: &x.received, writer: w, failed: &x.halfSent}
	}
	w.own = false
	p.reverse.ServeHTTP(w, r)
}

// Close ends requests in progress, and upgraded connections, and waits until their bytes are counted. Call it after the
// last request.
func (p *Proxy) Close() {
	p.stop()
	p.serving.Lock() // which waits for all that read
	defer p.serving.Unlock()
}

type passageKey struct{}

func passageOf(r *http.Request) *passage { return r.Context().Value(passageKey{}).(*passage) }

// failed answers if the application does not.
func (p *Proxy) failed(w http.ResponseWriter, r *http.Request, err error) {
	x := passageOf(r)
	x.status = http.StatusBadGateway
	w.(*writer).own = true
	var timeout net.Error
	switch {
	case x.halfSent.Load():
		x.status = http.StatusRequestTimeout
		w.Header().Set("Connection", "close")
		encode.WriteStatus(w, x.status, "The request did not arrive whole, or not in time.")
		return
	case r.Context().Err() != nil:
		x.status = statusClientGone
		w.(*writer).status = statusClientGone
		panic(http.ErrAbortHandler) // an answer without a word would be a 200
	case errors.As(err, &timeout) && timeout.Timeout():
		x.status = http.StatusGatewayTimeout
		encode.WriteStatus(w, x.status, "The application did not answer in time.")
	default:
		encode.WriteStatus(w, x.status, "The application does not answer.")
	}
	p.note("the application does not answer", "status", x.status, "error", failureOf(err))
}

// statusClientGone is the status in the metrics for a client that hung up, as in nginx.
const statusClientGone = 499

// note logs a problem, at most once a second, with the number of those since.
func (p *Proxy) note(text string, attrs ...any) {
	unlogged, pass := p.logged.Pass(time.Now())
	if !pass {
		return
	}
	if unlogged > 0 {
		attrs = append(attrs, throttle.Unlogged, unlogged)
	}
	p.opts.Logger.Warn(text, attrs...)
}
