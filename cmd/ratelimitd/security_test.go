package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/auth"
)

// TestLoopback tells addresses that only this machine reaches from others.
func TestLoopback(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "localhost:80": true, "LocalHost:0": true, "[::ffff:127.0.0.1]:80": true,
		":80": false, "0.0.0.0:80": false, "[::]:80": false, "10.0.0.1:80": false, "example.org:80": false, "127.0.0.1.example.org:80": false,
		"": false, "127.0.0.1": false,
	} {
		if got := isLoopback(address); got != want {
			t.Errorf("%q: %v", address, got)
		}
	}
}

// TestOpenListenerIsRefused starts where other machines would reach a server that asks
// nobody who they are.
func TestOpenListenerIsRefused(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"serve", "--listen=0.0.0.0:0"}, nil, strings.NewReader(""), &out, &errs); code != exitUsage || out.Len() > 0 {
		t.Errorf("exit code %d, %q", code, out.String())
	}
	for _, flag := range []string{"--listen 0.0.0.0:0", "--auth-file", "--tls-client-ca-file", "--insecure-no-auth"} {
		if !strings.Contains(errs.String(), flag) {
			t.Errorf("no %s in %s", flag, errs.String())
		}
	}
	callers := write(t, "callers.yaml", "callers:\n  - {name: a, token_sha256: "+auth.Digest("t")+", scopes: [decide], policies: any}\n")
	for flag, warning := range map[string]string{
		"--insecure-no-auth":     "nobody is asked who they are",
		"--auth-file=" + callers: "tokens travel in the clear",
	} {
		s := start(t, nil, "--listen=0.0.0.0:0", flag)
		s.log.waitFor(t, warning, 1)
	}
}

// write writes a file of its own folder and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, text)
	return path
}

// rewrite replaces a file at once.
func rewrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// asked returns the status of a take by who shows token.
func (s *server) asked(t *testing.T, token string) int {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, s.url+"/v1/take", strings.NewReader(`{"policy":"api","identifier":"a"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// TestCallersAreReloaded adds a caller, takes one away, and makes a mistake.
func TestCallersAreReloaded(t *testing.T) {
	line := func(name string) string {
		return "  - {name: " + name + ", token_sha256: " + auth.Digest(name) + ", scopes: [decide], policies: any}\n"
	}
	path := write(t, "callers.yaml", "callers:\n"+line("one"))
	s := start(t, nil, "--auth-file="+path)
	want := func(one, two int) {
		t.Helper()
		if s.asked(t, "one") != one || s.asked(t, "two") != two {
			t.Errorf("one: %d, two: %d; want %d, %d", s.asked(t, "one"), s.asked(t, "two"), one, two)
		}
	}
	want(200, 401)
	rewrite(t, path, "callers:\n"+line("one")+line("two"))
	s.log.waitFor(t, "callers in force", 2)
	want(200, 200)
	rewrite(t, path, "callers:\n"+line("two")+"  - {name: three}\n")
	s.log.waitFor(t, "callers not reloaded", 1)
	want(200, 200)
	rewrite(t, path, "callers:\n"+line("two"))
	s.log.waitFor(t, "callers in force", 3)
	want(401, 200)
	rewrite(t, path, "callers:\n"+strings.Replace(line("two"), ", policies: any", "", 1))
	s.log.waitFor(t, "callers may use no policy", 1)
	want(401, 403)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	s.log.waitFor(t, "callers not reloaded", 2)
	want(401, 403)
}

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	return a
}

func (a *authority) sign(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// issue returns a certificate for name and its key, in PEM.
func (a *authority) issue(name string) (cert, key string) {
	a.t.Helper()
	signed, private := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return toPEM("CERTIFICATE", signed.Raw), toPEM("PRIVATE KEY", der)
}

func (a *authority) pem() string { return toPEM("CERTIFICATE", a.cert.Raw) }

func toPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// newClient returns one that trusts a and shows a certificate of the name client, if that
// is given.
func newClient(t *testing.T, a *authority, from *authority, client string) *http.Client {
	t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	config.RootCAs.AddCert(a.cert)
	if client != "" {
		cert, key := from.issue(client)
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}, Timeout: patience}
}

// served returns the name in the certificate that a new connection to s is shown.
func (s *server) served(t *testing.T, a *authority, from *authority, client string) (name string, status int, err error) {
	t.Helper()
	asking := newClient(t, a, from, client)
	defer asking.CloseIdleConnections()
	resp, err := asking.Get(s.url + "/v1/policies")
	if err != nil {
		return "", 0, err
	}
	resp.Body.Close()
	return resp.TLS.PeerCertificates[0].Subject.CommonName, resp.StatusCode, nil
}

// TestCertificatesAreReloaded serves TLS, asks clients for certificates, and changes both.
func TestCertificatesAreReloaded(t *testing.T) {
	root, clients, others := newAuthority(t, "root"), newAuthority(t, "clients"), newAuthority(t, "others")
	certPEM, keyPEM := root.issue("first")
	folder := t.TempDir()
	cert, key, ca := filepath.Join(folder, "cert.pem"), filepath.Join(folder, "key.pem"), filepath.Join(folder, "ca.pem")
	rewrite(t, cert, certPEM)
	rewrite(t, key, keyPEM)
	rewrite(t, ca, clients.pem())
	s := start(t, nil, "--listen=0.0.0.0:0", "--tls-cert-file="+cert, "--tls-key-file="+key, "--tls-client-ca-file="+ca)
	if !strings.HasPrefix(s.url, "https://") {
		t.Fatalf("listening on %s", s.url)
	}
	s.url = "https://127.0.0.1:" + s.url[strings.LastIndex(s.url, ":")+1:]

	if name, status, err := s.served(t, root, clients, "shop"); name != "first" || status != 200 {
		t.Errorf("%q, %d, %v", name, status, err)
	}
	for _, c := range []struct {
		from   *authority
		client string
	}{{nil, ""}, {others, "shop"}} {
		if _, status, err := s.served(t, root, c.from, c.client); err == nil {
			t.Errorf("%q is answered %d", c.client, status)
		}
	}

	asking := newClient(t, root, clients, "scraper")
	waitUntil(t, func() bool { // the ones before are closed, and counted as such
		resp, err := asking.Get(s.url + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.ProtoMajor == 1 && strings.Contains(string(text), "ratelimitd_http_connections 1\n")
	})

	certPEM, keyPEM = root.issue("second")
	rewrite(t, cert, certPEM) // does not match the key for a moment
	rewrite(t, key, keyPEM)
	rewrite(t, ca, others.pem())
	waitUntil(t, func() bool {
		name, status, _ := s.served(t, root, others, "shop")
		return name == "second" && status == 200
	})
	if _, status, err := s.served(t, root, clients, "shop"); err == nil {
		t.Errorf("a client of the authority that is gone is answered %d", status)
	}
	if resp, err := asking.Get(s.url + "/v1/policies"); err == nil {
		t.Errorf("its open connection is answered %d", resp.StatusCode)
		resp.Body.Close()
	}
	rewrite(t, cert, "no PEM")
	s.log.waitFor(t, "certificates not reloaded", 1)
	if name, _, err := s.served(t, root, others, "shop"); name != "second" {
		t.Errorf("%q, %v: what was in force stays", name, err)
	}
}

// waitUntil waits until is, which takes a while itself.
func waitUntil(t *testing.T, is func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !is(); {
		if time.Now().After(late) {
			t.Fatalf("not within %v", patience)
		}
	}
}

// TestCertificatesAreCallers gives what is shown in a handshake scopes of its own.
func TestCertificatesAreCallers(t *testing.T) {
	root := newAuthority(t, "root")
	cert, key := root.issue("server")
	callers := write(t, "callers.yaml", "callers:\n  - {name: boss, certificate: boss.example.org, scopes: [admin], policies: any}\n"+
		"  - {name: shop, certificate: shop.example.org, scopes: [decide], policies: any}\n")
	files := []string{"--tls-cert-file=" + write(t, "cert.pem", cert), "--tls-key-file=" + write(t, "key.pem", key), "--auth-file=" + callers}
	s := start(t, nil, append(files, "--tls-client-ca-file="+write(t, "ca.pem", root.pem()))...)
	for client, want := range map[string]int{"boss.example.org": 200, "shop.example.org": 403, "thief.example.org": 401} {
		if _, status, err := s.served(t, root, root, client); status != want {
			t.Errorf("%s: %d, %v, want %d", client, status, err, want)
		}
	}
	var out, errs bytes.Buffer
	code := run(context.Background(), append([]string{"serve", "--listen=127.0.0.1:0"}, files...), nil, strings.NewReader(""), &out, &errs)
	if code != exitUsage || !strings.Contains(errs.String(), "none is asked for") {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestAskingWithCredentials asks as the command line does: with a token, over TLS.
func TestAskingWithCredentials(t *testing.T) {
	root := newAuthority(t, "root")
	cert, key := root.issue("server")
	var token, line bytes.Buffer
	if code := run(context.Background(), []string{"token", "shop", "--scopes", "decide,admin", "--policies", "api"}, nil,
		strings.NewReader(""), &token, &line); code != exitOK {
		t.Fatalf("exit code %d: %s", code, line.String())
	}
	s := start(t, nil, "--tls-cert-file="+write(t, "cert.pem", cert), "--tls-key-file="+write(t, "key.pem", key),
		"--auth-file="+write(t, "callers.yaml", "callers:\n"+line.String()))
	ca, file := write(t, "ca.pem", root.pem()), write(t, "token", token.String())
	secret := strings.TrimSpace(token.String())
	for _, c := range []struct {
		args, environ []string
		code          int
		says          string
	}{
		{[]string{"take", "api", "a", "--token-file", file, "--server-ca-file", ca}, nil, exitOK, "allowed"},
		{[]string{"reset", "api", "a", "--server-ca-file", ca}, []string{"RATELIMITD_TOKEN=" + secret}, exitOK, "reset"},
		{[]string{"take", "login", "a", "--token-file", file, "--server-ca-file", ca}, nil, exitError, "answers 403: policy"},
		{[]string{"record", "api", "a", "--token-file", file, "--server-ca-file", ca}, nil, exitError, "needs the scope record"},
		{[]string{"take", "api", "a", "--server-ca-file", ca}, nil, exitError, "--token-file"},
		{[]string{"take", "api", "a", "--token-file", file}, nil, exitError, "--server-ca-file"},
		{[]string{"take", "api", "a", "--token-file", file}, []string{"RATELIMITD_TOKEN=" + secret}, exitError, "keep one of them"},
		{[]string{"take", "api", "a", "--token-file", ca, "--server-ca-file", ca}, nil, exitError, "the token is none"},
		{[]string{"take", "api", "a", "--client-cert-file", ca}, nil, exitError, "need each other"},
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), append(c.args, "--server", s.url), c.environ, strings.NewReader(""), &out, &errs)
		if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, secret) {
			t.Errorf("%v: exit code %d, want %d with %q:\n%s", c.args, code, c.code, c.says, said)
		}
	}
}

// A file of authorities is read whole, or not at all: clients of one that got lost would all be
// turned away.
func TestAuthoritiesAreReadWhole(t *testing.T) {
	one, two := newAuthority(t, "one").pem(), newAuthority(t, "two").pem()
	_, key := newAuthority(t, "three").issue("server")
	for name, c := range map[string]struct{ file, want string }{
		"two":               {one + "# a comment\n" + two, ""},
		"beside a key":      {one + key, ""},
		"nothing":           {"", "there is no certificate"},
		"a key":             {key, "there is no certificate"},
		"text":              {"authority", "there is no certificate"},
		"cut off":           {one + two[:len(two)/2], "of its 2 blocks 1 can be read"},
		"damaged":           {one + strings.Replace(two, "MII", "M?I", 1) + one, "of its 3 blocks 2 can be read"},
		"not a certificate": {one + "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", "its block 2: "},
		"too long":          {one + strings.Repeat("#", 1<<20), "longer than 1048576 bytes"},
	} {
		_, err := authorities([]byte(c.file))
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
