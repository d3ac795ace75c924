package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestAskingWithoutTLS asks servers that don't come to speak TLS with the command line: it says
// that nothing was recorded, and which flag is missing.
func TestAskingWithoutTLS(t *testing.T) {
	root, others := newAuthority(t, "root"), newAuthority(t, "others")
	cert, key := root.issue("server")
	files := []string{"--tls-cert-file=" + write(t, "cert.pem", cert), "--tls-key-file=" + write(t, "key.pem", key)}
	ca := write(t, "ca.pem", root.pem())
	secret := start(t, nil, files...)
	mutual := start(t, nil, append(files, "--tls-client-ca-file="+ca)...)
	plain := start(t, nil)
	wrongCert, wrongKey := others.issue("shop")
	wrong := []string{"--client-cert-file", write(t, "c.pem", wrongCert), "--client-key-file", write(t, "k.pem", wrongKey)}
	port := func(s *server) string { return s.url[strings.LastIndex(s.url, ":"):] }
	for name, c := range map[string]struct {
		server string
		args   []string
		want   string
	}{
		"an authority that is not known": {secret.url, nil, "--server-ca-file"},
		"another name":                   {"https://localhost" + port(secret), []string{"--server-ca-file", ca}, "that its certificate has"},
		"no certificate":                 {mutual.url, []string{"--server-ca-file", ca}, "--client-cert-file"},
		"another's certificate":          {mutual.url, append(wrong, "--server-ca-file", ca), "--client-cert-file"},
		"no TLS there":                   {"https://127.0.0.1" + port(plain), nil, "give --server http://127.0.0.1" + port(plain)},
		"no TLS here":                    {"http://127.0.0.1" + port(secret), nil, "Give --server https://127.0.0.1" + port(secret)},
	} {
		for _, verb := range [][]string{{"take", "api", "a"}, {"record", "api", "a"}, {"reset", "api", "a"}, {"override", "list"}} {
			var out, errs bytes.Buffer
			args := append(append(verb, "--server", c.server), c.args...)
			code := run(context.Background(), args, nil, strings.NewReader(""), &out, &errs)
			nothing := strings.Contains(errs.String(), "Nothing was recorded.") || verb[0] != "take" && verb[0] != "record"
			if code != exitError || !strings.Contains(errs.String(), c.want) || !nothing || strings.Contains(errs.String(), "unknown:") {
				t.Errorf("%s, %s: exit code %d:\n%s", name, verb[0], code, &errs)
			}
		}
	}
}
