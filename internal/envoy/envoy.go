// Package envoy serves a limiter.Engine to Envoy over gRPC. It implements Envoy's Rate Limit Service v3 as
// envoyproxy/ratelimit does, and Limitador's CheckRateLimit, Report, Reserve and Commit.
//
// Envoy asks about a domain and descriptors, which a file of policies maps to policies. The values of a descriptor's
// entries are the identifier. Descriptors without a mapping pass.
//
// The package knows nothing about stores, files or Prometheus. It puts no value of an entry into a log line, a metric
// or an error.
package envoy

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/throttle"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// Outcome is the outcome of one descriptor.
type Outcome string

// The outcomes of descriptors.
const (
	OutcomeAllowed   Outcome = "allowed"
	OutcomeDenied    Outcome = "denied"
	OutcomeFailed    Outcome = "failed"    // the store did not answer, and the policy's on_store_error says deny
	OutcomeUnlimited Outcome = "unlimited" // the mapping says that there is no limit
	OutcomeReplaced  Outcome = "replaced"  // another descriptor's limit holds in place of this one's
	OutcomeUnmatched Outcome = "unmatched" // it has no mapping, and passes
)

// Outcomes lists all of them.
var Outcomes = []Outcome{OutcomeAllowed, OutcomeDenied, OutcomeFailed, OutcomeUnlimited, OutcomeReplaced, OutcomeUnmatched}

// DomainUnknown is reported for a domain that is not mapped. Other domains are reported by their names.
const DomainUnknown = "unknown"

// Options of a Server. The zero value has no authentication, log or hooks.
type Options struct {
	Logger  *slog.Logger     // of failed requests; nil: nothing is logged
	Now     func() time.Time // for durations only; nil: time.Now
	Keyring *auth.Keyring    // of callers and their scopes; nil: everybody may use every route

	// Observe is called after every request, with the method as RLS calls it, the overall code or that of gRPC, and the id
	// of its trace if it is sampled. It must not block, and may be nil.
	Observe func(method, code string, d time.Duration, trace string)
	// Refused is called for every request that is refused because of its caller, whose name is empty if it is not known.
	// It must not block, and may be nil.
	Refused func(ctx context.Context, caller string, err error)
	// Descriptor is called for every descriptor, with its domain or DomainUnknown. It must not block, and may be nil.
	Descriptor func(domain string, became Outcome)

	Tracer *tracing.Tracer // begins spans of requests and decisions; nil: nothing is traced
}

// Server answers the calls of Envoy. It is safe for concurrent use; make one with New.
type Server struct {
	rls.UnimplementedRateLimitServiceServer

	engine   *limiter.Engine
	opts     Options
	inMemory bool // the store is in this process
	mapping  atomic.Pointer[mapping]
	borrowed sync.Pool      // of *[]ask
	mistakes throttle.Lines // of requests with mistakes or without permission
	failures throttle.Lines // of requests that failed: all do while the store does not answer
	panics   throttle.Lines
}

// New returns a server for engine. A nil opts means the zero Options. All descriptors
// pass until SetMapping.
func New(engine *limiter.Engine, opts *Options) *Server {
	s := &Server{engine: engine, inMemory: engine.InMemory()}
	if opts != nil {
		s.opts = *opts
	}
	s.opts.Logger = cmp.Or(s.opts.Logger, slog.New(slog.DiscardHandler))
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	s.opts.Keyring = cmp.Or(s.opts.Keyring, new(auth.Keyring))
	if s.opts.Descriptor == nil {
		s.opts.Descriptor = func(string, Outcome) {}
	}
	s.mapping.Store(&mapping{})
	return s
}

// SetMapping replaces the mapping; nil maps nothing. Its policies must be in force: requests under others fail.
func (s *Server) SetMapping(file *policyfile.Envoy) { s.mapping.Store(newMapping(file)) }

// ShouldRateLimit takes the units of each descriptor. Each is decided and counted on its own: if one is denied, the
// others count nevertheless, unless the domain is decided together.
func (s *Server) ShouldRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer(ctx, count.OpTake, r)
}

// CheckRateLimit is a method of Limitador. It answers whether one unit of each descriptor would be allowed now, and
// counts nothing.
func (s *Server) CheckRateLimit(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer(ctx, count.OpCheck, r)
}

// Report is a method of Limitador. It counts the units of each descriptor, whatever the limit.
func (s *Server) Report(ctx context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	return s.answer(ctx, count.OpRecord, r)
}

func (s *Server) answer(ctx context.Context, op count.Op, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	m := s.mapping.Load()
	d := m.domains[r.GetDomain()]
	memory := s.borrow(min(len(r.GetDescriptors()), maxDescriptors)) // more are refused
	defer s.release(memory)
	asks := *memory
	if err := s.fill(ctx, asks, op, r, d); err != nil {
		return nil, err
	}
	if d != nil && d.together {
		s.decideTogether(ctx, asks)
	} else {
		s.decideAll(ctx, asks)
	}
	s.tell(d, asks)
	return m.response(asks)
}

// fill fills in asks with the demands of r, whose domain is d, and returns an error if the caller may not make them.
func (s *Server) fill(ctx context.Context, asks []ask, op count.Op, r *rls.RateLimitRequest, d *domain) error {
	caller, err := s.admit(ctx, op)
	if err != nil {
		return s.refuse(ctx, caller, err)
	}
	if err := prepare(asks, op, r, d); err != nil {
		return err
	}
	if err := permitted(caller, asks); err != nil {
		return s.refuse(ctx, caller, err)
	}
	return s.bringLimits(asks, r)
}

// tell reports the outcomes of the descriptors.
func (s *Server) tell(d *domain, asks []ask) {
	name := DomainUnknown
	if d != nil {
		name = d.name
	}
	for i := range asks {
		s.opts.Descriptor(name, asks[i].outcome())
	}
}

// maxKept is the number of descriptors whose memory is kept. More are rare.
const maxKept = 16

// borrow returns n zero asks, to be released.
func (s *Server) borrow(n int) *[]ask {
	if kept, ok := s.borrowed.Get().(*[]ask); ok && n <= cap(*kept) {
		*kept = (*kept)[:n]
		return kept
	}
	fresh := make([]ask, n, max(n, 4))
	return &fresh
}

func (s *Server) release(memory *[]ask) {
	if cap(*memory) <= maxKept {
		clear(*memory)
		s.borrowed.Put(memory)
	}
}
