package envoy

import (
	"context"
	"errors"
	"log/slog"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/envoy/kuadrantpb"
	"github.com/ratelimitd/ratelimitd/internal/grpcbound"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/tracing"
)

// failures maps every error to its code; the first that matches applies. Callers see the texts, which reveal nothing
// else.
var failures = []struct {
	err     error
	code    codes.Code
	message string
}{
	{auth.ErrUnauthenticated, codes.Unauthenticated, "send a known bearer token in the metadata authorization"},
	{auth.ErrForbidden, codes.PermissionDenied, "the caller is not permitted to ask for this"},
	{limiter.ErrInvalid, codes.InvalidArgument, "the policy can't read the identifier"},
	{limiter.ErrUnknownPolicy, codes.Unavailable, "the policies are changing"},
	{store.ErrOverloaded, codes.Unavailable, "the server is at one of its bounds"},
	{store.ErrUnavailable, codes.Unavailable, "the store does not answer, and the policy's on_store_error says deny"},
}

// statusOf returns err as a gRPC status.
func statusOf(ctx context.Context, err error) error {
	if _, told := status.FromError(err); told {
		return err
	}
	if ctx.Err() != nil { // whatever failed, the client does not wait for it any more
		return status.FromContextError(ctx.Err()).Err()
	}
	for _, f := range failures {
		if errors.Is(err, f.err) {
			return status.Error(f.code, f.message)
		}
	}
	return status.Error(codes.Internal, "the server failed; its log says how")
}

// intercept measures the time of a request, calls Options.Observe, and turns an error or a panic into a gRPC status.
func (s *Server) intercept(ctx context.Context, r any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	method, ours := methods[info.FullMethod]
	if !ours {
		return handle(ctx, r)
	}
	defer grpcbound.Begin(ctx)()
	start := s.opts.Now()
	ctx, span := s.trace(ctx, method)
	answer, err := s.handleSafely(ctx, r, handle)
	code, failed := "", err
	if err != nil {
		err = statusOf(ctx, err)
		code = status.Code(err).String()
		s.logFailure(ctx, method, span.TraceID(), failed, err)
	} else {
		code = codeIn(answer).String()
	}
	if s.opts.Observe != nil {
		s.opts.Observe(method, code, s.opts.Now().Sub(start), span.SampledID())
	}
	if isMistake(status.Code(err)) {
		failed = nil
	}
	span.Returned(method, code, failed)
	return answer, err
}

// codeIn returns the code of an answer. A Commit has none, because it is never denied.
func codeIn(answer any) rls.RateLimitResponse_Code {
	switch a := answer.(type) {
	case *rls.RateLimitResponse:
		return a.GetOverallCode()
	case *kuadrantpb.ReserveResponse:
		return a.GetCode()
	}
	return rls.RateLimitResponse_OK
}

// trace begins the span of a request.
func (s *Server) trace(ctx context.Context, method string) (context.Context, tracing.Span) {
	if s.opts.Tracer == nil {
		return ctx, tracing.Span{}
	}
	parents, states := metadata.ValueFromIncomingContext(ctx, "traceparent"), metadata.ValueFromIncomingContext(ctx, "tracestate")
	return s.opts.Tracer.Call(ctx, method, tracing.ParentFrom(parents, states))
}

// isMistake reports whether code is that of a mistake of the caller.
func isMistake(code codes.Code) bool {
	return code == codes.InvalidArgument || code == codes.Unauthenticated || code == codes.PermissionDenied
}

// handleSafely calls handle, and turns a panic into an error.
func (s *Server) handleSafely(ctx context.Context, r any, handle grpc.UnaryHandler) (answer any, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			s.panics.Panic(ctx, s.opts.Logger, "panic in a handler", cause, s.opts.Now())
			answer, err = nil, errPanic
		}
	}()
	return handle(ctx, r)
}

// logFailure logs the reason of a failed request: a mistake of the caller at info, a failure of the service as a
// warning, each at most once a second.
func (s *Server) logFailure(ctx context.Context, method, trace string, failed, told error) {
	code, level, lines := status.Code(told), slog.LevelWarn, &s.failures
	switch {
	case isMistake(code):
		level, lines = slog.LevelInfo, &s.mistakes
	case code == codes.Canceled:
		level = slog.LevelDebug
	}
	level, attrs := lines.Level(level, s.opts.Now())
	attrs = append(attrs, slog.String("method", method), slog.String("code", code.String()), slog.Any("error", failed))
	if trace != "" {
		attrs = append(attrs, slog.String("trace_id", trace))
	}
	s.opts.Logger.LogAttrs(ctx, level, "Envoy's request failed", attrs...)
}
