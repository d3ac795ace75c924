package proxy_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"

	"github.com/ratelimitd/ratelimitd/client/origin"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// FuzzRoutes holds that each request is answered under any routes, with an application or without.
func FuzzRoutes(f *testing.F) {
	f.Add([]byte("routes: [{path: '/a/{id}/{rest...}', limits: [{policy: two}]}]"), "/a/b/c", "example.com")
	f.Add([]byte("routes: [{host: '*.a', headers: {X: '*'}, methods: GET, limits: []}]"), "//", "b.a:80")
	f.Add([]byte("routes:\n- {path: /, limits: [{policy: two, charge: reported}]}\n"), "/%2e%2e/", "[::1]:80")
	f.Add([]byte("routes: [{path: /, limits: [{policy: two, limit: 'header:X-A'}]}]"), "/", "a")
	f.Fuzz(func(t *testing.T, file []byte, path, host string) {
		routes, err := proxy.Parse("f.yaml", file, []*policy.Policy{{Name: "two"}})
		if err != nil {
			return
		}
		engine := limiter.New(embedded.New(nil), nil)
		if err := engine.SetPolicies(policies[:1]); err != nil {
			t.Fatal(err)
		}
		p, err := proxy.New(engine, &proxy.Options{Upstream: &url.URL{Scheme: "http", Host: "127.0.0.1:1"}, Routes: routes,
			TrustedProxies: origin.Proxies{netip.MustParsePrefix("192.0.2.0/24")}})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.URL.Path, r.Host = path, host
		p.ServeHTTP(w, r)
		if w.Code != http.StatusBadGateway && w.Code != http.StatusBadRequest {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
