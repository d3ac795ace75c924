package gateways_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// forwardAuth is what the example says of Traefik's middleware of that name.
type forwardAuth struct {
	Address             string   `yaml:"address"`
	TrustForwardHeader  bool     `yaml:"trustForwardHeader"`
	AuthRequestHeaders  []string `yaml:"authRequestHeaders"`
	AuthResponseHeaders []string `yaml:"authResponseHeaders"`
}

// startTraefik serves as Traefik's documentation says of ForwardAuth: it asks by GET, with the
// headers of authRequestHeaders and the X-Forwarded ones; on a 2xx the request is performed,
// with authResponseHeaders in place of its own; any other answer is returned.
// https://doc.traefik.io/traefik/v3.3/reference/routing-configuration/http/middlewares/forwardauth
func startTraefik(t *testing.T, b *behind) *gateway {
	t.Helper()
	var file struct {
		HTTP struct {
			Middlewares map[string]struct {
				ForwardAuth forwardAuth `yaml:"forwardAuth"`
			} `yaml:"middlewares"`
		} `yaml:"http"`
	}
	if err := yaml.Unmarshal([]byte(readExample(t, "traefik/dynamic.yaml", "127.0.0.1:8080", addressOf(b.ratelimitd))), &file); err != nil {
		t.Fatal(err)
	}
	middleware := file.HTTP.Middlewares["ratelimitd"].ForwardAuth
	if middleware.Address == "" || middleware.TrustForwardHeader {
		t.Fatalf("the example says %+v", middleware)
	}
	to, err := url.Parse(b.app.URL)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(middleware.wrap(httputil.NewSingleHostReverseProxy(to)))
	t.Cleanup(server.Close)
	return &gateway{url: server.URL}
}

func (m *forwardAuth) wrap(next http.Handler) http.Handler {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	client := http.Client{Timeout: time.Second, CheckRedirect: stay}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := http.NewRequestWithContext(r.Context(), http.MethodGet, m.Address, nil)
		if err != nil {
			panic(err)
		}
		for _, name := range m.AuthRequestHeaders {
			if values := r.Header.Values(name); values != nil {
				asked.Header[http.CanonicalHeaderKey(name)] = values
			}
		}
		client4, _, _ := net.SplitHostPort(r.RemoteAddr)
		for name, said := range map[string]string{"For": client4, "Method": r.Method, "Proto": "http", "Host": r.Host, "Uri": r.RequestURI} {
			asked.Header.Set("X-Forwarded-"+name, said)
		}
		res, err := client.Do(asked)
		if err != nil {
			w.WriteHeader(http.StatusInternalServerError) // as its source has it
			return
		}
		defer res.Body.Close()
		if res.StatusCode < 200 || res.StatusCode > 299 {
			for name, values := range res.Header {
				w.Header()[name] = values
			}
			w.WriteHeader(res.StatusCode)
			_, _ = io.Copy(w, res.Body)
			return
		}
		for _, name := range m.AuthResponseHeaders {
			r.Header.Set(name, res.Header.Get(name))
		}
		next.ServeHTTP(w, r)
	})
}

// TestTraefik is served by what its documentation says.
func TestTraefik(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startTraefik(t, b)
	g.mustServe(t, "k")
	g.mustServe(t, "k")
	mustBeDenied(t, g.ask(t, http.MethodPost, "/a", "k"))
	g.mustServe(t, "another")
	g.mustServe(t, "") // by the address
	g.mustServe(t, "")
	mustBeDenied(t, g.ask(t, http.MethodGet, "/a", ""))
	for _, answer := range misbehaviours {
		b.misbehave(answer)
		if a := g.ask(t, http.MethodGet, "/a", "k"); a.status != http.StatusInternalServerError {
			t.Errorf("%d %q", a.status, a.body)
		}
	}
}
