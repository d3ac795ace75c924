package tracing

import (
	"context"
	"errors"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
)

// Attributes of spans for which OpenTelemetry has no names.
const (
	attrOp         = attribute.Key("ratelimitd.op")
	attrPolicy     = attribute.Key("ratelimitd.policy")
	attrLimit      = attribute.Key("ratelimitd.limit")     // the tightest one of the policy
	attrAlgorithm  = attribute.Key("ratelimitd.algorithm") // of that limit
	attrOutcome    = attribute.Key("ratelimitd.outcome")
	attrDemands    = attribute.Key("ratelimitd.demands")    // of a call
	attrRemembered = attribute.Key("ratelimitd.remembered") // decided from memory
	attrMember     = attribute.Key("ratelimitd.member")     // owner of the key
	attrView       = attribute.Key("ratelimitd.view")       // of the members
)

// Request begins the span of an HTTP request, and returns the request with it. End it by Answered.
func (t *Tracer) Request(r *http.Request) (*http.Request, Span) {
	if t == nil {
		return r, Span{}
	}
	ctx, span := t.enter(r.Context(), "request", ParentFrom(r.Header[httpParent], r.Header[httpState]))
	if span.Sampled() {
		r = r.WithContext(ctx)
	}
	return r, span
}

// Answered ends the span of an HTTP request. route must be a pattern, never a path. failed is the service's error, nil
// if there is none.
func (s Span) Answered(method, route string, status int, failed error) {
	if !s.Sampled() {
		return
	}
	method = knownMethod(method)
	s.span.SetName(method + " " + route)
	s.span.SetAttributes(
		attribute.String("http.request.method", method), attribute.String("http.route", route),
		attribute.Int("http.response.status_code", status),
	)
	s.fail(failed)
	s.span.End()
}

// knownMethod returns the method if it is a standard one, because anything may be in others.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return "_OTHER"
}

// Call begins the span of a gRPC request, with the parent from. End it by Returned.
func (t *Tracer) Call(ctx context.Context, method string, from Parent) (context.Context, Span) {
	return t.enter(ctx, method, from)
}

// Returned ends the span of a gRPC request. method and code must have few values. failed is the service's error, nil if
// there is none.
func (s Span) Returned(method, code string, failed error) {
	if !s.Sampled() {
		return
	}
	s.span.SetAttributes(
		attribute.String("rpc.system", "grpc"), attribute.String("rpc.method", method), attribute.String("ratelimitd.code", code),
	)
	s.fail(failed)
	s.span.End()
}

// Decide begins the span of a decision. End it by Decided. A nil t begins none.
func (t *Tracer) Decide(ctx context.Context, op count.Op) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	ctx, span := begin(ctx, "decide", ofOwn)
	if span.Sampled() {
		span.span.SetAttributes(attrOp.String(string(op)))
	}
	return ctx, span
}

// Decided ends the span of the decision d about demands, or of a call that failed with err.
func (s Span) Decided(d *count.Decision, demands int, err error) {
	if !s.Sampled() {
		return
	}
	if demands > 1 {
		s.span.SetAttributes(attrDemands.Int(demands))
	}
	if err != nil || d.Policy == nil {
		s.undecided(err)
		return
	}
	outcome, by := d.Outcome()
	limit := d.Limits()[by].Limit
	s.span.SetAttributes(
		attrPolicy.String(d.Policy.Name), attrLimit.String(limit.Name), attrAlgorithm.String(limit.Algorithm),
		attrOutcome.String(outcome.String()), attrRemembered.Bool(d.Remembered),
	)
	s.span.End()
}

// undecided ends the span of a call that was not decided. It records no error of the caller's, whose text may quote the
// request.
func (s Span) undecided(err error) {
	failed := (*count.StoreError)(nil)
	switch {
	case errors.Is(err, owner.ErrRefused): // the call is tried again
		s.span.SetAttributes(attrOutcome.String("refused"))
	case errors.As(err, &failed):
		s.span.SetAttributes(attrOutcome.String("failed"))
		s.fail(err)
	default:
		s.span.SetAttributes(attrOutcome.String("invalid"))
	}
	s.span.End()
}

// HandOn begins the span of handing c on to member, the owner of its key, and returns the parent for the owner's span. End
// it by HandedOn.
func HandOn(ctx context.Context, member string, c *demand.Charge) (Span, Parent) {
	ctx, span := begin(ctx, "hand on", ofClient)
	if !span.Sampled() {
		return span, Parent{}
	}
	span.of(c)
	span.span.SetAttributes(attrMember.String(member))
	return span, parentOf(ctx)
}

// DecideForPeer begins the span of deciding c, which another instance handed on. End it by HandedOn. If from is zero or t
// is nil, it begins none.
func (t *Tracer) DecideForPeer(ctx context.Context, from Parent, c *demand.Charge) (context.Context, Span) {
	if from.Traceparent == "" {
		return ctx, Span{}
	}
	ctx, span := t.enter(ctx, "decide for peer", from)
	if span.Sampled() {
		span.of(c)
	}
	return ctx, span
}

// of sets the attributes of c.
func (s Span) of(c *demand.Charge) {
	s.span.SetAttributes(attrOp.String(string(c.Op)), attrView.Int64(c.View))
	if c.Definition != nil {
		s.span.SetAttributes(attrPolicy.String(c.Definition.Policy))
	}
}

// HandedOn ends the span of c, which was handed on. It was decided if err is nil.
func (s Span) HandedOn(c *demand.Charge, err error) {
	switch {
	case !s.Sampled():
		return
	case err != nil && errors.Is(err, owner.ErrRefused):
		s.span.SetAttributes(attrOutcome.String("refused"))
	case err != nil:
		s.span.SetAttributes(attrOutcome.String("failed"))
		s.span.SetStatus(codes.Error, err.Error())
	case c.Decides():
		outcome := count.OutcomeDenied
		if c.Decision.WouldAllow {
			outcome = count.OutcomeAllowed
		}
		s.span.SetAttributes(attrOutcome.String(outcome.String()), attrRemembered.Bool(c.Decision.Remembered))
	}
	s.span.End()
}

// Verify begins the span of verifying that the term still holds. End it by Verified.
func Verify(ctx context.Context) (context.Context, Span) {
	return begin(ctx, "fence", ofOwn)
}

// Verified ends the span of verifying the term. It still holds if err is nil.
func (s Span) Verified(err error) {
	if s.Sampled() {
		s.fail(err)
		s.span.End()
	}
}
