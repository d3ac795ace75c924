package serve_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// proxied is a configuration of which the route / is limited by the policy login.
const proxied = "proxy-listen: 127.0.0.1:0\nroutes:\n  - {name: all, path: /, limits: [{policy: login}]}\n"

// application answers with what it was asked, and by what protocol it should be spoken to.
func application(t *testing.T) string {
	t.Helper()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "app: %s by %s", r.URL, r.Header.Get("X-Forwarded-Proto"))
	}))
	t.Cleanup(app.Close)
	return app.URL
}

// startProxy runs proxy, and returns where clients come to.
func startProxy(t *testing.T, environ []string, flags ...string) (s *server, url string) {
	t.Helper()
	s = startCommand(t, "proxy", environ, flags...)
	s.More.WaitFor(t, "\n", 1)
	url, found := strings.CutPrefix(strings.TrimSpace(s.More.String()), "proxying on ")
	if !found {
		t.Fatalf("the second line is %q", s.More)
	}
	return s, url
}

// mustPass sends a request and wants this status.
func mustPass(t *testing.T, client *http.Client, url string, status int) (res *http.Response, body string) {
	t.Helper()
	res, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Errorf("%s: %d, want %d: %s, %v", url, res.StatusCode, status, text, err)
	}
	return res, string(text)
}

// TestProxy limits what passes, and serves beside it all that serve does.
func TestProxy(t *testing.T) {
	config := clitest.Write(t, "proxy.yaml", proxied+"upstream: "+application(t)+"\n")
	s, url := startProxy(t, nil, "--config="+config)
	for range 5 {
		if _, body := mustPass(t, http.DefaultClient, url+"/a?b", 200); body != "app: /a?b by http" {
			t.Errorf("%q", body)
		}
	}
	mustPass(t, http.DefaultClient, url+"/a", 429)
	if s.Get(t, "/readyz") != 200 || s.Get(t, "/v1/policies") != 200 {
		t.Error("it does not serve what serve does")
	}
	s.WaitForMetric(t, `route="proxy all"`)
	s.WaitForMetric(t, "ratelimitd_http_connections 2\n") // of the proxy and of the API
	mustPass(t, http.DefaultClient, url+"/metrics", 429)  // it is the application's
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.Log)
	}
}

// TestProxyIsForEverybody: its own address is public by nature, and that of serve is not.
func TestProxyIsForEverybody(t *testing.T) {
	config := clitest.Write(t, "proxy.yaml", strings.Replace(proxied, "127.0.0.1:0", "0.0.0.0:0", 1))
	_, url := startProxy(t, nil, "--config="+config, "--upstream="+application(t))
	mustPass(t, http.DefaultClient, strings.Replace(url, "[::]", "127.0.0.1", 1), 200)
	code, _, stderr := clitest.Execute(t, nil, "proxy", "--config="+config, "--upstream=http://127.0.0.1:1", "--listen=0.0.0.0:0")
	if code != command.ExitUsage || !strings.Contains(stderr, "--insecure-no-auth") {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// TestProxyOverTLS checks that clients that speak HTTP/2 get it.
func TestProxyOverTLS(t *testing.T) {
	root := clitest.NewAuthority(t, "root")
	certPEM, keyPEM := root.Issue("first")
	folder := t.TempDir()
	cert, key := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem")
	clitest.Rewrite(t, cert, certPEM)
	clitest.Rewrite(t, key, keyPEM)
	config := clitest.Write(t, "proxy.yaml", proxied)
	_, url := startProxy(t, nil, "--config="+config, "--upstream="+application(t), "--tls-cert-file="+cert, "--tls-key-file="+key)
	client := newClient(t, root, nil, "")
	defer client.CloseIdleConnections()
	res, body := mustPass(t, client, url+"/a", 200)
	if res.ProtoMajor != 2 || body != "app: /a by https" {
		t.Errorf("%s, %q", res.Proto, body)
	}
}

// TestProxyAsksNobodyForACertificate, whatever the other listener asks for.
func TestProxyAsksNobodyForACertificate(t *testing.T) {
	root := clitest.NewAuthority(t, "root")
	cert, key := root.Issue("server")
	config := clitest.Write(t, "proxy.yaml", proxied+"upstream: "+application(t)+"\n")
	s, url := startProxy(t, nil, "--config="+config, "--tls-cert-file="+clitest.Write(t, "cert.pem", cert),
		"--tls-key-file="+clitest.Write(t, "key.pem", key), "--tls-client-ca-file="+clitest.Write(t, "ca.pem", root.PEM()))
	mustPass(t, newClient(t, root, nil, ""), url+"/a", 200)
	if _, status, err := s.served(t, root, nil, ""); err == nil {
		t.Errorf("who has no certificate is answered %d by the other one", status)
	}
	if _, status, err := s.served(t, root, root, "shop"); status != 200 {
		t.Errorf("%d, %v", status, err)
	}
}

// TestProxyLogsNothingOfAnswers that nobody asked for, which net/http does by itself: but that
// there was one, in the log of the process.
func TestProxyLogsNothingOfAnswers(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 anna@example.com\r\n\r\n")
	}))
	defer app.Close()
	s, url := startProxy(t, nil, "--config="+clitest.Write(t, "proxy.yaml", proxied+"upstream: "+app.URL+"\n"))
	mustPass(t, http.DefaultClient, url, 200)
	s.Log.WaitFor(t, `level=WARN msg="Unsolicited response received on idle HTTP channel"`, 1)
	if text := s.Log.String(); strings.Contains(text, "anna") {
		t.Errorf("logged %s", text)
	}
}

func TestProxyMistakes(t *testing.T) {
	for _, c := range []struct{ config, flag, want string }{
		{proxied, "--log-level=info", "--upstream is missing"},
		{proxied, "--upstream=localhost:80", `"localhost:80" is not the URL of an application`},
		{proxied, "--upstream=http://svc:S3cret@a", "do not write a name and a password"},
		{proxied, "--upstream=svc:S3cret@a:80", "do not write a name and a password"},
		{strings.Replace(proxied, "login", "logn", 1), "--upstream=http://a",
			`:3: routes[0].limits[0].policy: there is no policy "logn": did you mean login?`},
		{strings.Replace(proxied, "login}", "login, limit: 'header:X-Plan'}", 1), "--upstream=http://a",
			":3: routes[0].limits[0].limit: the policy takes no limit from requests"},
		{"rotes: []\n", "--upstream=http://a", ":1: rotes: unknown key: did you mean routes?"},
	} {
		code, _, stderr := clitest.Execute(t, nil, "proxy", "--listen=127.0.0.1:0", "--config="+clitest.Write(t, "p.yaml", c.config), c.flag)
		if code != command.ExitUsage || !strings.Contains(stderr, c.want) || strings.Contains(stderr, "S3cret") {
			t.Errorf("%s: exit code %d, %s", c.flag, code, stderr)
		}
	}
	code, _, stderr := clitest.Execute(t, nil, "proxy", "--listen=127.0.0.1:0", "--upstream=http://a")
	if code != command.ExitUsage || !strings.Contains(stderr, "--config is missing") {
		t.Errorf("without a file: exit code %d, %s", code, stderr)
	}
}

// TestProxiesShareCassandra: two of them count together.
func TestProxiesShareCassandra(t *testing.T) {
	config := clitest.Write(t, "proxy.yaml", proxied+"upstream: "+application(t)+"\n")
	environ := []string{"RATELIMITD_STORE_TIMEOUT=5s"}
	flags := onCassandra(t, "--config="+config)
	_, first := startProxy(t, environ, flags...)
	_, second := startProxy(t, environ, flags...)
	for i := range 6 {
		url, want := first, 200
		if i%2 == 1 {
			url = second
		}
		if i == 5 {
			want = 429
		}
		mustPass(t, http.DefaultClient, url, want)
	}
}

// TestProxyExample starts by the example, and follows its routes.
func TestProxyExample(t *testing.T) {
	const folder = "../../../examples/proxy/"
	s, url := startProxy(t, nil, "--config="+folder+"proxy.yaml", "--policies="+folder+"policies.yaml", "--proxy-listen=127.0.0.1:0",
		"--upstream="+application(t))
	for _, c := range []struct{ path, route, limit string }{
		{"/healthz", "health", ""}, {"/v1/search/a", "search", "600"}, {"/files/a", "files", "1200"}, {"/a", "rest", "1200"},
	} {
		res, _ := mustPass(t, http.DefaultClient, url+c.path, 200)
		if got := res.Header.Get("X-Ratelimit-Limit"); got != c.limit {
			t.Errorf("%s: a limit of %q, want %q", c.path, got, c.limit)
		}
		s.WaitForMetric(t, `route="proxy `+c.route+`"`)
	}
}

// TestProxyEndsBeforeWhatItsApplicationAsks has an application that answers a request with what
// the same process decides, when that was told to stop already.
func TestProxyEndsBeforeWhatItsApplicationAsks(t *testing.T) {
	came, goOn, address := make(chan struct{}), make(chan struct{}), ""
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(came)
		<-goOn
		res, err := http.Get(address + "/v1/policies")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		w.WriteHeader(res.StatusCode)
	}))
	t.Cleanup(app.Close)
	s, url := startProxy(t, nil, "--config="+clitest.Write(t, "proxy.yaml", proxied), "--upstream="+app.URL)
	address = s.URL
	answered := make(chan struct{})
	go func() { defer close(answered); mustPass(t, http.DefaultClient, url+"/a", 200) }()
	<-came
	s.Stop()
	s.Log.WaitFor(t, "stopping", 1)
	close(goOn)
	<-answered
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d\n%s", code, s.Log)
	}
}
