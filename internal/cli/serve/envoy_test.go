package serve_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpctls "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// mapped is a file of policies that maps the key a to a policy of this limit.
func mapped(limit string) string {
	return "policies:\n  - {name: one, limits: [{algorithm: fixed-window, limit: " + limit + ", window: 24h}]}\n" +
		"envoy: {domains: [{domain: edge, descriptors: [{key: a, policy: one}]}]}\n"
}

// envoyClient returns a client of what s serves to Envoy, as stdout says where.
func (s *server) envoyClient(t *testing.T, creds grpctls.TransportCredentials) rls.RateLimitServiceClient {
	t.Helper()
	s.More.WaitFor(t, "\n", 1)
	scheme, address, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(s.More.String()), "listening for Envoy on "), "://")
	if !found || scheme != map[bool]string{true: "grpcs", false: "grpc"}[creds != nil] {
		t.Fatalf("the second line is %q", s.More)
	}
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return rls.NewRateLimitServiceClient(conn)
}

// askEnvoy asks of one descriptor, with what is shown as authorization.
func askEnvoy(t *testing.T, client rls.RateLimitServiceClient, value string, shown ...string) (rls.RateLimitResponse_Code, codes.Code) {
	t.Helper()
	ctx := context.Background()
	for _, authorization := range shown {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	r, err := client.ShouldRateLimit(ctx, &rls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: "a", Value: value}}},
	}})
	return r.GetOverallCode(), status.Code(err)
}

const (
	passes = rls.RateLimitResponse_OK
	over   = rls.RateLimitResponse_OVER_LIMIT
)

// TestServeEnvoy starts a service for Envoy beside HTTP, reloads its mapping, and stops
// it.
func TestServeEnvoy(t *testing.T) {
	file := clitest.Write(t, "policies.yaml", mapped("1"))
	s := start(t, nil, "--envoy-listen=127.0.0.1:0", "--policies="+file)
	client := s.envoyClient(t, nil)
	for _, want := range []rls.RateLimitResponse_Code{passes, over} {
		if code, err := askEnvoy(t, client, "x"); code != want || err != codes.OK {
			t.Errorf("answered %v, %v; want %v", code, err, want)
		}
	}
	clitest.Rewrite(t, file, strings.ReplaceAll(mapped("0"), "key: a", "key: b"))
	s.Log.WaitFor(t, "descriptors of Envoy mapped", 2)
	if code, err := askEnvoy(t, client, "x"); code != passes || err != codes.OK {
		t.Errorf("answered %v, %v after the key was renamed", code, err)
	}
	clitest.Rewrite(t, file, "policies:\n  - {name: one, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\n")
	s.Log.WaitFor(t, "maps no domain of Envoy's", 1)
	text := s.Body(t, "/metrics")
	for _, line := range []string{
		`ratelimitd_envoy_request_duration_seconds_count{code="OVER_LIMIT",method="ShouldRateLimit"} 1`,
		`ratelimitd_envoy_descriptors_total{domain="edge",outcome="unmatched"} 1`,
		`ratelimitd_envoy_descriptors_total{domain="edge",outcome="denied"} 1`,
		"ratelimitd_envoy_connections 1",
		`ratelimitd_envoy_turned_away_total{bound="connections"} 0`,
		`ratelimitd_envoy_turned_away_total{bound="idle"} 0`,
	} {
		if !strings.Contains(text, line) {
			t.Errorf("the metrics lack %s", line)
		}
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d:\n%s", code, s.Log)
	}
	if _, err := askEnvoy(t, client, "x"); err != codes.Unavailable {
		t.Errorf("answered %v after the end", err)
	}
}

// TestEnvoyIsServedNowhereUnlessAsked holds that nothing listens by default.
func TestEnvoyIsServedNowhereUnlessAsked(t *testing.T) {
	s := start(t, nil)
	s.Stop()
	if s.Wait(t); s.More.String() != "" || strings.Contains(s.Log.String(), "Envoy") {
		t.Errorf("stdout goes on with %q; log:\n%s", s.More, s.Log)
	}
}

// TestEnvoyListenerIsRefused holds that it is as guarded as that of HTTP, and that a port
// that is taken ends the service.
func TestEnvoyListenerIsRefused(t *testing.T) {
	code, _, errs := clitest.Execute(t, nil, "serve", "--listen=127.0.0.1:0", "--envoy-listen=0.0.0.0:0")
	if code != command.ExitUsage || !strings.Contains(errs, "--envoy-listen 0.0.0.0:0: other machines could ask") {
		t.Errorf("exit code %d, %s", code, errs)
	}
	s := start(t, nil)
	taken := strings.TrimPrefix(s.URL, "http://")
	if code, _, errs := clitest.Execute(t, nil, "serve", "--listen=127.0.0.1:0", "--envoy-listen="+taken); code != command.ExitFailure {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestEnvoyShowsWhoItIs holds that callers need a token, its scope and its policies.
func TestEnvoyShowsWhoItIs(t *testing.T) {
	line := func(name, more string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", " + more + "}\n"
	}
	callers := clitest.Write(t, "callers.yaml", "callers:\n"+line("envoy", "scopes: [decide], policies: any")+
		line("other", "scopes: [decide], policies: [another]")+line("scraper", "scopes: [metrics]"))
	policies := mapped("5") + "  "
	policies = strings.Replace(policies, "envoy:", "  - {name: another, limits: [{algorithm: fixed-window, limit: 1, window: 1m}]}\nenvoy:", 1)
	s := start(t, nil, "--envoy-listen=127.0.0.1:0", "--auth-file="+callers, "--policies="+clitest.Write(t, "policies.yaml", policies))
	client := s.envoyClient(t, nil)
	for _, test := range []struct {
		shown []string
		want  codes.Code
	}{
		{nil, codes.Unauthenticated},
		{[]string{"Bearer stranger"}, codes.Unauthenticated},
		{[]string{"Bearer envoy", "Bearer envoy"}, codes.Unauthenticated},
		{[]string{"Bearer scraper"}, codes.PermissionDenied},
		{[]string{"Bearer other"}, codes.PermissionDenied},
		{[]string{"Bearer envoy"}, codes.OK},
	} {
		if _, got := askEnvoy(t, client, "x", test.shown...); got != test.want {
			t.Errorf("%q: answered %v, want %v", test.shown, got, test.want)
		}
	}
	if strings.Contains(s.Log.String(), "stranger") {
		t.Errorf("a token is in the log:\n%s", s.Log)
	}
}

// TestEnvoyByTLS checks that certificates are those of HTTP, and that a client is authenticated by its own.
func TestEnvoyByTLS(t *testing.T) {
	a := clitest.NewAuthority(t, "ours")
	cert, key := a.Issue("localhost")
	callers := clitest.Write(t, "callers.yaml", "callers:\n  - {name: envoy, certificate: envoy.example, scopes: [decide], policies: any}\n")
	s := start(t, nil, "--envoy-listen=127.0.0.1:0", "--auth-file="+callers, "--policies="+clitest.Write(t, "policies.yaml", mapped("5")),
		"--tls-cert-file="+clitest.Write(t, "cert.pem", cert), "--tls-key-file="+clitest.Write(t, "key.pem", key),
		"--tls-client-ca-file="+clitest.Write(t, "ca.pem", a.PEM()))
	for name, want := range map[string]codes.Code{"envoy.example": codes.OK, "other.example": codes.Unauthenticated, "": codes.Unavailable} {
		config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
		config.RootCAs.AddCert(a.Cert)
		if name != "" {
			pair, err := tls.X509KeyPair(pems(a.Issue(name)))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		client := s.envoyClient(t, grpctls.NewTLS(config))
		if _, got := askEnvoy(t, client, "x"); got != want {
			t.Errorf("%q: answered %v, want %v", name, got, want)
		}
		if _, got := askEnvoy(t, client, "x", "Bearer one", "Bearer other"); got == codes.OK {
			t.Errorf("%q: answered %v with two tokens", name, got)
		}
	}
}

func pems(cert, key string) ([]byte, []byte) { return []byte(cert), []byte(key) }

// TestImportEnvoy converts a file and serves what becomes of it.
func TestImportEnvoy(t *testing.T) {
	there := clitest.Write(t, "edge.yaml", "domain: edge\ndescriptors:\n  - key: a\n    detailed_metric: true\n"+
		"    rate_limit: {unit: day, requests_per_unit: 1}\n")
	code, out, errs := clitest.Execute(t, nil, "policies", "import-envoy", there, "--count=admitted")
	if code != command.ExitOK || !strings.Contains(errs, there+":4: descriptors[0].detailed_metric: left out") {
		t.Fatalf("exit code %d, %s", code, errs)
	}
	if !strings.Contains(out, "count: admitted") || !strings.HasPrefix(out, "# Made of "+there) {
		t.Errorf("printed\n%s", out)
	}
	s := start(t, nil, "--envoy-listen=127.0.0.1:0", "--policies="+clitest.Write(t, "policies.yaml", out))
	client := s.envoyClient(t, nil)
	for _, want := range []rls.RateLimitResponse_Code{passes, over} {
		if code, err := askEnvoy(t, client, "x"); code != want || err != codes.OK {
			t.Errorf("answered %v, %v; want %v", code, err, want)
		}
	}
}

// TestEnvoysShareCassandra holds that instances which each serve an Envoy count together,
// each descriptor for itself.
func TestEnvoysShareCassandra(t *testing.T) {
	policies := clitest.Write(t, "policies.yaml", "policies:\n"+
		"  - {name: log, limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}\n"+
		"  - {name: window, limits: [{algorithm: fixed-window, limit: 1000, window: 31d}], count: all}\n"+
		"envoy: {domains: [{domain: edge, descriptors: [{key: a, policy: log}, {key: b, policy: window}]}]}\n")
	flags := onCassandra(t, "--envoy-listen=127.0.0.1:0", "--policies="+policies)
	both := []rls.RateLimitServiceClient{start(t, nil, flags...).envoyClient(t, nil), start(t, nil, flags...).envoyClient(t, nil)}
	request := &rls.RateLimitRequest{Domain: "edge"}
	for _, key := range []string{"a", "b"} {
		entries := []*common.RateLimitDescriptor_Entry{{Key: key, Value: "x"}}
		request.Descriptors = append(request.Descriptors, &common.RateLimitDescriptor{Entries: entries})
	}
	var all sync.WaitGroup
	var passed, counted atomic.Int64
	for i := range 30 {
		all.Go(func() {
			r, err := both[i%2].ShouldRateLimit(context.Background(), request)
			if err != nil {
				t.Error(err)
				return
			}
			counted.Add(1)
			if r.GetOverallCode() == passes {
				passed.Add(1)
			}
		})
	}
	all.Wait()
	if passed.Load() > 10 || passed.Load() == 0 {
		t.Errorf("%d passed a limit of 10", passed.Load())
	}
	request.Descriptors = request.Descriptors[1:]
	r, err := both[0].ShouldRateLimit(context.Background(), request)
	if want := uint32(1000 - counted.Load() - 1); err != nil || r.GetStatuses()[0].GetLimitRemaining() != want {
		t.Errorf("%d were counted: %v, %v; want %d left", counted.Load(), r, err, want)
	}
}
