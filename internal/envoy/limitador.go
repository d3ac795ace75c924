package envoy

import (
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/envoy/kuadrantpb"
)

// methods are the served methods, by their full names.
var methods = map[string]string{
	rls.RateLimitService_ShouldRateLimit_FullMethodName:       "ShouldRateLimit",
	kuadrantpb.RateLimitService_CheckRateLimit_FullMethodName: "CheckRateLimit",
	kuadrantpb.RateLimitService_Report_FullMethodName:         "Report",
	kuadrantpb.RateLimitService_Reserve_FullMethodName:        "Reserve",
	kuadrantpb.RateLimitService_Commit_FullMethodName:         "Commit",
}
