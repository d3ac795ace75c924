package envoy

import (
	"context"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// FuzzRequest holds that any message is answered with a status for each descriptor, or refused.
func FuzzRequest(f *testing.F) {
	for _, r := range []*rls.RateLimitRequest{requestOf(), requestOf("a", "b", "d"), {Domain: "other"}} {
		data, err := proto.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	s := newLocal(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r rls.RateLimitRequest
		if proto.Unmarshal(data, &r) != nil {
			return // gRPC refuses it
		}
		for name, ask := range map[string]func(context.Context, *rls.RateLimitRequest) (*rls.RateLimitResponse, error){
			"ShouldRateLimit": s.ShouldRateLimit, "CheckRateLimit": s.CheckRateLimit, "Report": s.Report,
		} {
			answer, err := ask(context.Background(), &r)
			switch {
			case err != nil && status.Code(err) != codes.InvalidArgument:
				t.Errorf("%s: %v", name, err)
			case err == nil && (len(answer.GetStatuses()) != len(r.GetDescriptors()) || answer.GetOverallCode() == rls.RateLimitResponse_UNKNOWN):
				t.Errorf("%s: %v of %d descriptors", name, answer, len(r.GetDescriptors()))
			}
		}
	})
}
