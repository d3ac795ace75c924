package serve_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestOpenListenerIsRefused starts where other machines would reach a server without authentication.
func TestOpenListenerIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), clitest.Patience)
	defer cancel()
	var out, errs bytes.Buffer
	if code := clitest.Run(ctx, []string{"serve", "--listen=0.0.0.0:0"}, nil, strings.NewReader(""), &out, &errs); code != command.ExitUsage ||
		out.Len() > 0 {
		t.Errorf("exit code %d, %q", code, out.String())
	}
	for _, flag := range []string{"--listen 0.0.0.0:0", "--auth-file", "--tls-client-ca-file", "--insecure-no-auth"} {
		if !strings.Contains(errs.String(), flag) {
			t.Errorf("no %s in %s", flag, errs.String())
		}
	}
	callers := clitest.Write(t, "callers.yaml",
		"callers:\n  - {name: a, token_sha256: "+auth.Digest("t")+", scopes: [decide], policies: any}\n")
	for flag, warning := range map[string]string{
		"--insecure-no-auth":     "there is no authentication",
		"--auth-file=" + callers: "tokens travel in the clear",
	} {
		s := start(t, nil, "--listen=0.0.0.0:0", flag)
		s.Log.WaitFor(t, warning, 1)
	}
}

// TestCallersAreReloaded adds a caller, takes one away, and makes a mistake.
func TestCallersAreReloaded(t *testing.T) {
	line := func(name string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", scopes: [decide], policies: any}\n"
	}
	path := clitest.Write(t, "callers.yaml", "callers:\n"+line("one"))
	s := start(t, nil, "--auth-file="+path)
	want := func(one, two int) {
		t.Helper()
		if s.Asked(t, "one") != one || s.Asked(t, "two") != two {
			t.Errorf("one: %d, two: %d; want %d, %d", s.Asked(t, "one"), s.Asked(t, "two"), one, two)
		}
	}
	want(200, 401)
	clitest.Rewrite(t, path, "callers:\n"+line("one")+line("two"))
	s.Log.WaitFor(t, "callers in force", 2)
	want(200, 200)
	clitest.Rewrite(t, path, "callers:\n"+line("two")+"  - {name: three}\n")
	s.Log.WaitFor(t, "callers not reloaded", 1)
	want(200, 200)
	clitest.Rewrite(t, path, "callers:\n"+line("two"))
	s.Log.WaitFor(t, "callers in force", 3)
	want(401, 200)
	clitest.Rewrite(t, path, "callers:\n"+strings.Replace(line("two"), ", policies: any", "", 1))
	s.Log.WaitFor(t, "callers may use no policy", 1)
	want(401, 403)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.Log.WaitFor(t, "callers not reloaded", 2)
	want(401, 403)
}

// newClient returns one that trusts a and shows a certificate of the name client, if that
// is given.
func newClient(t *testing.T, a *clitest.Authority, from *clitest.Authority, client string) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	config.RootCAs.AddCert(a.Cert)
	if client != "" {
		cert, key := from.Issue(client)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}, Timeout: clitest.Patience}
}

// served returns the name in the certificate that a new connection to s is shown.
func (s *server) served(t *testing.T, a *clitest.Authority, from *clitest.Authority, client string) (name string, status int, err error) {
	t.Helper()
	asking := newClient(t, a, from, client)
	defer asking.CloseIdleConnections()
	resp, err := asking.Get(s.URL + "/v1/policies")
	if err != nil {
		return "", 0, err
	}
	resp.Body.Close()
	return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.StatusCode, nil
}

// TestCertificatesAreReloaded serves TLS, asks clients for certificates, and changes both.
func TestCertificatesAreReloaded(t *testing.T) {
	root, clients := clitest.NewAuthority(t, "root"), clitest.NewAuthority(t, "clients")
	others := clitest.NewAuthorityUntil(t, "others", time.Now().Add(24*time.Hour))
	certPEM, keyPEM := root.Issue("first")
	folder := t.TempDir()
	cert, key, ca := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"), filepath.Join(folder, "ca.pem")
	clitest.Rewrite(t, cert, certPEM)
	clitest.Rewrite(t, key, keyPEM)
	clitest.Rewrite(t, ca, clients.PEM())
	s := start(t, nil, "--listen=0.0.0.0:0", "--tls-cert-file="+cert, "--tls-key-file="+key, "--tls-client-ca-file="+ca)
	if !strings.HasPrefix(s.URL, "https://") {
		t.Fatalf("listening on %s", s.URL)
	}
	s.URL = "https://127.0.0.1:" + s.URL[strings.LastIndex(s.URL, ":")+1:]

	if name, status, err := s.served(t, root, clients, "shop"); name != "first" || status != 200 {
		t.Errorf("%q, %d, %v", name, status, err)
	}
	for _, c := range []struct {
		from   *clitest.Authority
		client string
	}{{nil, ""}, {others, "shop"}} {
		if _, status, err := s.served(t, root, c.from, c.client); err == nil {
			t.Errorf("%q is answered %d", c.client, status)
		}
	}

	asking := newClient(t, root, clients, "scraper")
	waitUntil(t, func() bool { // the ones before are closed, and counted as such
		resp, err := asking.Get(s.URL + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.ProtoMajor == 1 && strings.Contains(string(text), "ratelimitd_http_connections 1\n") &&
			strings.Contains(string(text), `ratelimitd_certificate_expiry_timestamp_seconds{certificate="server"} 1.`) &&
			strings.Contains(string(text), expiryOf("client_ca", clients)) &&
			strings.Contains(string(text), `ratelimitd_last_reload_successful{file="certificates"} 1`)
	})

	certPEM, keyPEM = root.Issue("second")
	clitest.Rewrite(t, cert, certPEM) // does not match the key for a moment
	clitest.Rewrite(t, key, keyPEM)
	clitest.Rewrite(t, ca, others.PEM())
	waitUntil(t, func() bool {
		name, status, _ := s.served(t, root, others, "shop")
		return name == "second" && status == 200
	})
	if _, status, err := s.served(t, root, clients, "shop"); err == nil {
		t.Errorf("a client of the authority that is gone is answered %d", status)
	}
	scraping := newClient(t, root, others, "scraper")
	defer scraping.CloseIdleConnections()
	resp, err := scraping.Get(s.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); !strings.Contains(string(text), expiryOf("client_ca", others)) {
		t.Error("the metric has not the authority of today")
	}
	if resp, err := asking.Get(s.URL + "/v1/policies"); err == nil {
		t.Errorf("its open connection is answered %d", resp.StatusCode)
		resp.Body.Close()
	}
	clitest.Rewrite(t, cert, "no PEM")
	s.Log.WaitFor(t, "certificates not reloaded", 1)
	if name, _, err := s.served(t, root, others, "shop"); name != "second" {
		t.Errorf("%q, %v: what was in force stays", name, err)
	}
}

// expiryOf returns the line of the metric that says when an authority expires.
func expiryOf(certificate string, of *clitest.Authority) string {
	value := strconv.FormatFloat(float64(of.Cert.NotAfter.Unix()), 'g', -1, 64)
	return "ratelimitd_certificate_expiry_timestamp_seconds{certificate=\"" + certificate + "\"} " + value + "\n"
}

// waitUntil waits until is returns true.
func waitUntil(t *testing.T, is func() bool) {
	t.Helper()
	again, late := time.NewTicker(5*time.Millisecond), time.After(clitest.Patience)
	defer again.Stop()
	for !is() {
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("not within %v", clitest.Patience)
		}
	}
}

// TestCertificatesAreCallers gives what is shown in a handshake scopes of its own.
func TestCertificatesAreCallers(t *testing.T) {
	root := clitest.NewAuthority(t, "root")
	cert, key := root.Issue("server")
	callers := clitest.Write(t, "callers.yaml", "callers:\n  - {name: boss, certificate: boss.example.org, scopes: [admin], policies: any}\n"+
		"  - {name: shop, certificate: shop.example.org, scopes: [decide], policies: any}\n")
	files := []string{"--tls-cert-file=" + clitest.Write(t, "cert.pem", cert), "--tls-key-file=" + clitest.Write(t, "key.pem", key),
		"--auth-file=" + callers}
	s := start(t, nil, append(files, "--tls-client-ca-file="+clitest.Write(t, "ca.pem", root.PEM()))...)
	for client, want := range map[string]int{"boss.example.org": 200, "shop.example.org": 403, "thief.example.org": 401} {
		if _, status, err := s.served(t, root, root, client); status != want {
			t.Errorf("%s: %d, %v, want %d", client, status, err, want)
		}
	}
	var out, errs bytes.Buffer
	code := clitest.Run(context.Background(), append([]string{"serve", "--listen=127.0.0.1:0"}, files...), nil, strings.NewReader(""), &out,
		&errs)
	if code != command.ExitUsage || !strings.Contains(errs.String(), "none is asked for") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestExpiryOfCassandrasAuthorities is told before any node is reached.
func TestExpiryOfCassandrasAuthorities(t *testing.T) {
	nodes := clitest.NewAuthority(t, "nodes")
	s := start(t, nil, "--store=cassandra", "--cassandra-hosts=127.0.0.1:1", "--cassandra-datacenter=d", "--cassandra-tls",
		"--cassandra-tls-ca="+clitest.Write(t, "ca.pem", nodes.PEM()))
	s.WaitForMetric(t, expiryOf("cassandra_ca", nodes))
}
