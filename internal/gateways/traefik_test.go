package gateways_test

import (
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

// forwardAuth is the example's configuration of Traefik's middleware of that name.
type forwardAuth struct {
	Address             string   `yaml:"address"`
	TrustForwardHeader  bool     `yaml:"trustForwardHeader"`
	AuthRequestHeaders  []string `yaml:"authRequestHeaders"`
	AuthResponseHeaders []string `yaml:"authResponseHeaders"`
}

// customHeaders is the example's configuration of Traefik's middleware headers.
type customHeaders struct {
	Origins  []string          `yaml:"accessControlAllowOriginList"`
	Methods  []string          `yaml:"accessControlAllowMethods"`
	Headers  []string          `yaml:"accessControlAllowHeaders"`
	Exposed  []string          `yaml:"accessControlExposeHeaders"`
	MaxAge   int               `yaml:"accessControlMaxAge"`
	Requests map[string]string `yaml:"customRequestHeaders"`
}

// startTraefik serves as Traefik's documentation says of ForwardAuth: it asks by GET, with the
// headers of authRequestHeaders and the X-Forwarded ones; on a 2xx the request is performed,
// with authResponseHeaders in place of its own; any other answer is returned.
// https://doc.traefik.io/traefik/v3.3/reference/routing-configuration/http/middlewares/forwardauth
func startTraefik(t *testing.T, b *behind) *gateway {
	t.Helper()
	var file struct {
		HTTP struct {
			Routers map[string]struct {
				Middlewares []string `yaml:"middlewares"`
			} `yaml:"routers"`
			Middlewares map[string]struct {
				ForwardAuth *forwardAuth   `yaml:"forwardAuth"`
				Headers     *customHeaders `yaml:"headers"`
			} `yaml:"middlewares"`
		} `yaml:"http"`
	}
	if err := yaml.Unmarshal([]byte(readExample(t, "traefik/dynamic.yaml", "127.0.0.1:8080", addressOf(b.ratelimitd))), &file); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(b.app.URL)
	if err != nil {
		t.Fatal(err)
	}
	var handler http.Handler = httputil.NewSingleHostReverseProxy(to)
	for _, name := range slices.Backward(file.HTTP.Routers["app"].Middlewares) {
		switch middleware := file.HTTP.Middlewares[name]; {
		case middleware.Headers != nil:
			handler = middleware.Headers.wrap(handler)
		case middleware.ForwardAuth != nil && middleware.ForwardAuth.Address != "" && !middleware.ForwardAuth.TrustForwardHeader:
			handler = middleware.ForwardAuth.wrap(handler)
		default:
			t.Fatalf("the example says %+v of %s", middleware, name)
		}
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return &gateway{url: server.URL}
}

// wrap serves as Traefik's documentation says of the headers middleware: it answers preflights
// itself, an empty custom header is removed, and answers get the CORS headers, in place of the
// application's.
// https://doc.traefik.io/traefik/v3.3/reference/routing-configuration/http/middlewares/headers
func (m *customHeaders) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		allowed := slices.Contains(m.Origins, r.Header.Get("Origin"))
		if r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != "" {
			w.Header().Set("Access-Control-Allow-Methods", strings.Join(m.Methods, ","))
			w.Header().Set("Access-Control-Allow-Headers", strings.Join(m.Headers, ","))
			w.Header().Set("Access-Control-Max-Age", strconv.Itoa(m.MaxAge))
			if allowed {
				w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
			}
			return
		}
		for name, value := range m.Requests {
			if r.Header.Del(name); value != "" {
				r.Header.Set(name, value)
			}
		}
		answered := httptest.NewRecorder()
		next.ServeHTTP(answered, r)
		maps.Copy(w.Header(), answered.Header())
		if allowed {
			w.Header().Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
		}
		w.Header().Set("Access-Control-Expose-Headers", strings.Join(m.Exposed, ","))
		w.WriteHeader(answered.Code)
		_, _ = answered.Body.WriteTo(w)
	})
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

// TestTraefikPassesOnWhatWasCounted, of a header that is sent twice.
func TestTraefikPassesOnWhatWasCounted(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	b.mustPassOnWhatWasCounted(t, startTraefik(t, b))
}

// TestTraefikLimitsAddresses, whatever keys they send.
func TestTraefikLimitsAddresses(t *testing.T) {
	startTraefik(t, newBehind(t, "127.0.0.1")).mustLimitMadeUpKeys(t)
}

// TestTraefikTakesLargeBodies that the application takes.
func TestTraefikTakesLargeBodies(t *testing.T) {
	startTraefik(t, newBehind(t, "127.0.0.1")).mustTakeLargeBodies(t)
}

// TestTraefikAndPagesOfOtherOrigins (CORS).
func TestTraefikAndPagesOfOtherOrigins(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startTraefik(t, b)
	if a := b.mustExemptPreflights(t, g); a.header.Get("Access-Control-Allow-Origin") != page ||
		!strings.Contains(strings.ToLower(a.header.Get("Access-Control-Allow-Headers")), "x-api-key") {
		t.Errorf("%v %q", a.header, a.body)
	}
	g.mustShareDenials(t)
}
