package envoy

import (
	"context"
	"strings"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// LimitadorService is the full name of Limitador's own service. Its messages are those of
// Envoy's Rate Limit Service, but for Reserve and Commit.
const LimitadorService = "kuadrant.service.ratelimit.v1.RateLimitService"

// Names of methods as gRPC has them.
const (
	methodCheck   = "/" + LimitadorService + "/CheckRateLimit"
	methodReport  = "/" + LimitadorService + "/Report"
	methodReserve = "/" + LimitadorService + "/Reserve"
	methodCommit  = "/" + LimitadorService + "/Commit"
)

// methods are the methods that are served, by their full names.
var methods = map[string]string{
	rls.RateLimitService_ShouldRateLimit_FullMethodName: "ShouldRateLimit",
	methodCheck:  "CheckRateLimit",
	methodReport: "Report", methodReserve: "Reserve", methodCommit: "Commit",
}

// limitador describes what Limitador's kuadrantrls.proto does, which no module has the
// code of.
var limitador = grpc.ServiceDesc{
	ServiceName: LimitadorService,
	HandlerType: (*limitadorServer)(nil),
	Methods: []grpc.MethodDesc{
		unary(methodCheck, limitadorServer.CheckRateLimit),
		unary(methodReport, limitadorServer.Report),
		unary(methodReserve, limitadorServer.Reserve),
		unary(methodCommit, limitadorServer.Commit),
	},
	Metadata: "kuadrantrls.proto",
}

type limitadorServer interface {
	CheckRateLimit(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)
	Report(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error)
	Reserve(context.Context, *reserveRequest) (*reserveResponse, error)
	Commit(context.Context, *commitRequest) (*commitResponse, error)
}

// unary describes one method, as protoc-gen-go-grpc would.
func unary[In, Out any](fullMethod string, do func(limitadorServer, context.Context, *In) (*Out, error)) grpc.MethodDesc {
	handler := func(srv any, ctx context.Context, decode func(any) error, intercept grpc.UnaryServerInterceptor) (any, error) {
		in := new(In)
		if err := decode(in); err != nil {
			return nil, err
		}
		handle := func(ctx context.Context, in any) (any, error) {
			return do(srv.(limitadorServer), ctx, in.(*In))
		}
		if intercept == nil {
			return handle(ctx, in)
		}
		return intercept(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: fullMethod}, handle)
	}
	return grpc.MethodDesc{MethodName: fullMethod[strings.LastIndexByte(fullMethod, '/')+1:], Handler: handler}
}
