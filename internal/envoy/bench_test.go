package envoy

import (
	"context"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// newLocal returns a server over the embedded store, whose domain edge maps the keys a,
// b and c to one generous policy.
func newLocal(tb testing.TB) *Server {
	tb.Helper()
	file, err := policyfile.ParseFile("p.yaml", []byte(`
policies: [{name: api, limits: [{algorithm: sliding-tail, limit: 1000000000000000, window: 1m}]}]
envoy:
  domains: [{domain: edge, descriptors: [{key: a, policy: api}, {key: b, policy: api}, {key: c, policy: api}]}]
`))
	if err != nil {
		tb.Fatal(err)
	}
	engine := limiter.New(embedded.New(nil), nil)
	if err := engine.SetPolicies(file.Policies); err != nil {
		tb.Fatal(err)
	}
	s := New(engine, nil)
	s.SetMapping(file.Envoy)
	return s
}

// requestOf returns a request of the domain edge about these keys.
func requestOf(keys ...string) *rls.RateLimitRequest {
	r := &rls.RateLimitRequest{Domain: "edge"}
	for _, key := range keys {
		r.Descriptors = append(r.Descriptors, &pb.RateLimitDescriptor{
			Entries: []*pb.RateLimitDescriptor_Entry{{Key: key, Value: "192.0.2.1"}},
		})
	}
	return r
}

// BenchmarkShouldRateLimit measures a request from its message to that of the answer,
// without a connection.
func BenchmarkShouldRateLimit(b *testing.B) {
	for name, r := range map[string]*rls.RateLimitRequest{
		"one": requestOf("a"), "three": requestOf("a", "b", "c"), "unmatched": requestOf("d"),
	} {
		b.Run(name, func(b *testing.B) {
			s := newLocal(b)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.ShouldRateLimit(context.Background(), r); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
