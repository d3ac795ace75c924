package envoy_test

import (
	"context"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
)

const byRequest = `policies:
  - {name: asked, limits: [{algorithm: sliding-log, limit: {from: request, max: 9, default: 1}, window: 1h}]}
  - {name: odd, limits: [{algorithm: sliding-log, limit: {from: request, max: 9, default: 1}, window: 15m}]}
  - {name: monthly, limits: [{algorithm: fixed-window, limit: {from: request, max: 9, default: 1}, window: month}]}
  - {name: fixed, limits: [{algorithm: sliding-log, limit: 2, window: 1h}]}
envoy:
  domains:
    - domain: edge
      descriptors:
        - {key: asked, policy: asked}
        - {key: odd, policy: odd}
        - {key: monthly, policy: monthly}
        - {key: fixed, policy: fixed}
        - {key: free, unlimited: true}
`

const (
	minute = typev3.RateLimitUnit_MINUTE
	hour   = typev3.RateLimitUnit_HOUR
	month  = typev3.RateLimitUnit_MONTH
	year   = typev3.RateLimitUnit_YEAR
)

// bringing returns the descriptor with a limit.
func bringing(d *common.RateLimitDescriptor, number uint32, unit typev3.RateLimitUnit) *common.RateLimitDescriptor {
	d.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: number, Unit: unit}
	return d
}

// TestDescriptorsBringLimits holds that a descriptor is decided by the limit that it brings, and that all count together.
func TestDescriptorsBringLimits(t *testing.T) {
	f := newFront(t, byRequest, settings{})
	for i, step := range []struct {
		limit uint32
		want  string
	}{{0, "OK 0"}, {0, "OVER_LIMIT 0"}, {3, "OK 1"}, {2, "OVER_LIMIT 0"}, {3, "OK 0"}, {3, "OVER_LIMIT 0"}, {9, "OK 5"}} {
		d := descriptor("asked=acme")
		if step.limit > 0 {
			bringing(d, step.limit, hour)
		}
		got := f.send(request(d)).GetStatuses()[0]
		if text := got.GetCode().String(); text+" "+string(rune('0'+got.GetLimitRemaining())) != step.want {
			t.Fatalf("step %d, limit %d: %v", i, step.limit, got)
		}
		if got.GetCurrentLimit().GetRequestsPerUnit() != max(1, step.limit) {
			t.Errorf("step %d, limit %d: %v", i, step.limit, got.GetCurrentLimit())
		}
	}
	f.send(request(bringing(descriptor("monthly=a"), 2, month), bringing(descriptor("free=a"), 2, year)))
}

// TestWrongLimitsOfDescriptors holds that a limit that a policy does not take is refused.
func TestWrongLimitsOfDescriptors(t *testing.T) {
	f := newFront(t, byRequest, settings{})
	for want, d := range map[string]*common.RateLimitDescriptor{
		"descriptors[0].limit.requests_per_unit: 0 is out of range: use 1 to 9":    bringing(descriptor("asked=a"), 0, hour),
		"descriptors[0].limit.requests_per_unit: 10 is out of range: use 1 to 9":   bringing(descriptor("asked=a"), 10, hour),
		"descriptors[0].limit.unit: MINUTE, and the policy's window is 1h: use HO": bringing(descriptor("asked=a"), 1, minute),
		"descriptors[0].limit.unit: the policy's window of 15m is not a unit":      bringing(descriptor("odd=a"), 1, minute),
		"descriptors[0].limit: the policy takes no limit from requests: remove it": bringing(descriptor("fixed=a"), 1, hour),
		"descriptors[0].limit: no policy is mapped to the descriptor":              bringing(descriptor("other=a"), 1, hour),
	} {
		_, err := f.client.ShouldRateLimit(context.Background(), request(d))
		wantCode(t, err, codes.InvalidArgument, want)
	}
}
