// Package api serves a limiter.Engine over HTTP: JSON in, decisions and RFC 9457
// problems out. openapi.yaml is its contract and is served with it.
//
// Every route is one line below. Every handler decodes, calls and encodes by handle, and every error gets its status
// from the table in package encode.
//
// The package knows nothing about stores, policy files or Prometheus. It puts no identifier into a URL, a log line, a
// header or an error.
package api

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"github.com/ratelimitd/ratelimitd/internal/api/decode"
	"github.com/ratelimitd/ratelimitd/internal/api/encode"
	"github.com/ratelimitd/ratelimitd/internal/api/memory"
	"github.com/ratelimitd/ratelimitd/internal/audit"
	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/throttle"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Options of a Server. The zero value serves all but /metrics, overshoot, shadow and the
// live page, is always ready and logs nothing.
type Options struct {
	Logger  *slog.Logger                // of requests; nil: nothing is logged
	Metrics http.Handler                // of GET /metrics; nil: that route is unknown
	Ready   func(context.Context) error // its error makes readyz a 503; nil: always ready
	Headers encode.HeaderFamilies       // of every decision; zero: HeadersDefault
	Now     func() time.Time            // for durations only; nil: time.Now
	Keyring *auth.Keyring               // of callers and their scopes; nil: everybody may use every route
	Hosts   *Hosts                      // host names that requests without authentication may have; nil: any

	// Audit logs each action of an administrator and each refused caller, without identifiers; nil: nothing is logged.
	Audit *audit.Log

	// Overshoot reports how far callers went past the limits of a policy, with the top worst keys, on one instance, or on
	// all if instance is empty. Its error is limiter.ErrUnknownPolicy, or that of UnknownInstance. nil: there is no such
	// route.
	Overshoot func(ctx context.Context, policy string, top int, instance string) (Overshoot, error)

	// Shadow reports the denials that shadows of a policy would have made. The handler adds the policy and its numbers.
	// nil: there is no such route.
	Shadow func(ctx context.Context, policy string) encode.Shadow

	// UI is the live page; nil: there are no such routes.
	UI *UI

	// Policies keeps versions of the policies that instances share; nil: there are no routes that change them.
	Policies Policies

	// ForwardAuth has the gateways that may call GET /v1/forward-auth, and the sources of identifiers.
	ForwardAuth ForwardAuth

	// Observe is called after every request, with the route as in the OpenAPI document, or RouteUnknown, and the id of its
	// trace if it is sampled. It must not block, and may be nil.
	Observe func(route string, status int, d time.Duration, trace string)

	// Tracer begins spans of requests and decisions; nil: nothing is traced.
	Tracer *tracing.Tracer

	// Warnings returns the warnings of readyz, for people; nil: there are none.
	Warnings func() []string

	// Reached is called for every request that BoundBodies refused. It must not block, and may be nil.
	Reached func(connections.Bound)
}

// BoundBodies is the bound of memory for the bodies of requests in progress. Beyond it, large bodies are refused.
const BoundBodies connections.Bound = "bodies"

// Bounds are the bounds of memory that a client can reach.
var Bounds = []connections.Bound{connections.Full, connections.Idle, BoundBodies}

// Server is the HTTP face of an engine. It is safe for concurrent use; make one
// with New.
type Server struct {
	engine    *limiter.Engine
	opts      Options
	mux       *chi.Mux
	exchanges sync.Pool // of *exchange
	memory    *memory.Pool
	inMemory  bool // the store is in this process

	refused throttle.Statuses // of refused and failed requests, by status: strangers can cause any number
	panics  throttle.Lines
}

// New returns a server for engine. A nil opts means the zero Options.
func New(engine *limiter.Engine, opts *Options) *Server {
	s := &Server{engine: engine, mux: chi.NewMux(), inMemory: engine.InMemory()}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	s.opts.Keyring = cmp.Or(s.opts.Keyring, new(auth.Keyring))
	s.memory = memory.NewPool(engine.Policy)
	s.exchanges.New = func() any { return &exchange{scratch: scratch{share: s.memory.Share()}} }
	s.routes()
	return s
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, s.routed(r)) }

func (s *Server) routes() {
	s.mux.Use(s.observe, s.recoverPanic, middleware.GetHead)
	s.mux.NotFound(func(w http.ResponseWriter, r *http.Request) { s.fail(w.(*exchange), r, encode.ErrNoRoute) })
	s.mux.MethodNotAllowed(s.methodNotAllowed)

	s.mux.Post("/v1/check", handle(s, auth.Decide, decodeCall(count.OpCheck), s.decide))
	s.mux.Post("/v1/record", handle(s, auth.Record, decodeCall(count.OpRecord), s.decide))
	s.mux.Post("/v1/take", handle(s, auth.Decide, decodeCall(count.OpTake), s.decide))
	s.mux.Post("/v1/batch", handle(s, auth.Decide|auth.Record, decodeBatch, s.batch))
	s.mux.Post("/v1/refund", handle(s, auth.Decide|auth.Record, decodeReceipt, s.refund))
	s.mux.Post("/v1/confirm", handle(s, auth.Decide|auth.Record, decodeReceipt, s.confirm))
	s.mux.Get("/v1/forward-auth", handle(s, open, s.decodeForward, s.forwardAuth)) // its decoder checks the gateway
	s.mux.Post("/v1/reset", handle(s, auth.Admin, decodeAdmin, s.reset))
	s.mux.Post("/v1/explain", handle(s, auth.Admin, decodeExplain, s.explain))
	s.mux.Post("/v1/overrides", handle(s, auth.Admin, decodeOverride, s.setOverride))
	s.mux.Get("/v1/overrides", handle(s, auth.Admin, decodeCaller, s.overrides))
	s.mux.Post("/v1/overrides/get", handle(s, auth.Admin, decodeOverridden, s.getOverride))
	s.mux.Post("/v1/overrides/delete", handle(s, auth.Admin, decodeOverridden, s.deleteOverride))
	s.mux.Get("/v1/policies", handle(s, auth.Admin, decodeCaller, s.policies))
	s.mux.Get("/v1/policies/{name}", handle(s, auth.Admin, decodePolicyName, s.policy))
	if s.opts.Policies != nil {
		s.mux.Put("/v1/policies", handle(s, auth.Admin, decodePolicies, s.applyPolicies))
		s.mux.Get("/v1/policy-versions", handle(s, auth.Admin, decodeCallerOfAll, s.policyVersions))
		s.mux.Get("/v1/policy-versions/{version}", handle(s, auth.Admin, decodePolicyVersion, s.policyVersion))
	}
	s.mux.Get("/healthz", handle(s, open, decodeNothing, s.healthz))
	s.mux.Get("/readyz", handle(s, open, decodeNothing, s.readyz))
	s.mux.Get("/openapi.yaml", s.openapi)
	if s.opts.Overshoot != nil {
		s.mux.Get("/v1/policies/{name}/overshoot", handle(s, auth.Admin, decodeOvershoot, s.overshoot))
	}
	if s.opts.Shadow != nil {
		s.mux.Get("/v1/policies/{name}/shadow", handle(s, auth.Admin, decodePolicyName, s.shadow))
	}
	if s.opts.UI != nil {
		s.routeUI()
	}
	if s.opts.Metrics != nil {
		s.mux.Method(http.MethodGet, "/metrics", s.guard(auth.Metrics|auth.Admin, s.opts.Metrics))
	}
}

// methodNotAllowed answers 405 with the methods that the path does take.
func (s *Server) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		asked := m
		if m == http.MethodHead {
			asked = http.MethodGet // middleware.GetHead answers it there
		}
		if s.mux.Match(chi.NewRouteContext(), asked, r.URL.Path) {
			w.Header().Add("Allow", m)
		}
	}
	if len(w.Header()["Allow"]) == 0 { // chi asks the method first, whatever the path
		s.fail(w.(*exchange), r, encode.ErrNoRoute)
		return
	}
	s.fail(w.(*exchange), r, encode.ErrMethod)
}

// answer is the result of a call. Render sets the headers and appends the body.
type answer interface {
	Render(h http.Header, b []byte) (status int, body []byte)
}

// handle returns the handler of a route for callers with one of scopes. read decodes the request, do does the work, and
// its answer is written. An error of either is answered as a problem.
func handle[In any](
	s *Server,
	scopes auth.Scope,
	read func(r *http.Request, m *scratch) (In, error),
	do func(ctx context.Context, in In) (answer, error),
) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		x := w.(*exchange)
		var a answer
		var in In
		err := s.admit(x, r, scopes)
		if err == nil {
			in, err = read(r, &x.scratch)
		}
		if err == nil {
			a, err = do(r.Context(), in)
		}
		if err != nil {
			s.fail(x, r, err)
			return
		}
		flows, flow := a.(*streamed)
		if flow {
			a = flows.send(x)
		}
		b, _ := a.(*batched)
		if b != nil && b.refused != nil {
			s.auditRefusal(x, r, b.refused)
		}
		if flow && r.Context().Err() != nil {
			x.status = encode.StatusClientGone // the client left; the log should not blame the store
			return
		}
		if b != nil {
			x.err = b.err
		}
		if !flow && !x.write(a) {
			s.fail(x, r, decode.ErrBusy)
		}
	}
}

// fail answers with the problem for err, and passes err to the log line of the request.
func (s *Server) fail(x *exchange, r *http.Request, err error) {
	if errors.Is(err, decode.ErrBusy) && s.opts.Reached != nil {
		s.opts.Reached(BoundBodies)
	}
	s.auditRefusal(x, r, err)
	p := encode.ProblemOf(err)
	p.Challenge = challengeOf(err)
	if r.Context().Err() != nil && p.Status == http.StatusServiceUnavailable {
		p.Status = encode.StatusClientGone // the client left; the log should not blame the store
	}
	x.err, x.kind = err, p.Kind
	x.write(p)
}
