package ask_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestAskingWithoutTLS asks servers that don't come to speak TLS with the command line: it says
// that nothing was recorded, and which flag is missing.
func TestAskingWithoutTLS(t *testing.T) {
	root, others := clitest.NewAuthority(t, "root"), clitest.NewAuthority(t, "others")
	cert, key := root.Issue("server")
	files := []string{"--tls-cert-file=" + clitest.Write(t, "cert.pem", cert), "--tls-key-file=" + clitest.Write(t, "key.pem", key)}
	ca := clitest.Write(t, "ca.pem", root.PEM())
	secret := clitest.Start(t, nil, files...)
	mutual := clitest.Start(t, nil, append(files, "--tls-client-ca-file="+ca)...)
	plain := clitest.Start(t, nil)
	wrongCert, wrongKey := others.Issue("shop")
	wrong := []string{"--client-cert-file", clitest.Write(t, "c.pem", wrongCert), "--client-key-file", clitest.Write(t, "k.pem", wrongKey)}
	port := func(s *clitest.Server) string { return s.URL[strings.LastIndex(s.URL, ":"):] }
	for name, c := range map[string]struct {
		server string
		args   []string
		want   string
	}{
		"an authority that is not known": {secret.URL, nil, "--server-ca-file"},
		"another name":                   {"https://localhost" + port(secret), []string{"--server-ca-file", ca}, "that its certificate has"},
		"no certificate":                 {mutual.URL, []string{"--server-ca-file", ca}, "--client-cert-file"},
		"another's certificate":          {mutual.URL, append(wrong, "--server-ca-file", ca), "--client-cert-file"},
		"no TLS there":                   {"https://127.0.0.1" + port(plain), nil, "give --server http://127.0.0.1" + port(plain)},
		"no TLS here":                    {"http://127.0.0.1" + port(secret), nil, "Give --server https://127.0.0.1" + port(secret)},
	} {
		for _, verb := range [][]string{{"take", "api", "a"}, {"record", "api", "a"}, {"reset", "api", "a"}, {"override", "list"}} {
			var out, errs bytes.Buffer
			args := append(append(verb, "--server", c.server), c.args...)
			code := clitest.Run(context.Background(), args, nil, strings.NewReader(""), &out, &errs)
			nothing := strings.Contains(errs.String(), "Nothing was recorded.") || verb[0] != "take" && verb[0] != "record"
			if code != command.ExitError || !strings.Contains(errs.String(), c.want) || !nothing || strings.Contains(errs.String(), "unknown:") {
				t.Errorf("%s, %s: exit code %d:\n%s", name, verb[0], code, &errs)
			}
		}
	}
}

// TestAskingWithCredentials asks as the command line does: with a token, over TLS.
func TestAskingWithCredentials(t *testing.T) {
	root := clitest.NewAuthority(t, "root")
	cert, key := root.Issue("server")
	var token, line bytes.Buffer
	if code := clitest.Run(context.Background(), []string{"token", "shop", "--scopes", "decide,admin", "--policies", "api"}, nil,
		strings.NewReader(""), &token, &line); code != command.ExitOK {
		t.Fatalf("exit code %d: %s", code, line.String())
	}
	s := clitest.Start(t, nil, "--tls-cert-file="+clitest.Write(t, "cert.pem", cert), "--tls-key-file="+clitest.Write(t, "key.pem", key),
		"--auth-file="+clitest.Write(t, "callers.yaml", "callers:\n"+line.String()))
	ca, file := clitest.Write(t, "ca.pem", root.PEM()), clitest.Write(t, "token", token.String())
	secret := strings.TrimSpace(token.String())
	for _, c := range []struct {
		args, environ []string
		code          int
		says          string
	}{
		{[]string{"take", "api", "a", "--token-file", file, "--server-ca-file", ca}, nil, command.ExitOK, "allowed"},
		{[]string{"reset", "api", "a", "--server-ca-file", ca}, []string{"RATELIMITD_TOKEN=" + secret}, command.ExitOK, "reset"},
		{[]string{"take", "login", "a", "--token-file", file, "--server-ca-file", ca}, nil, command.ExitError, "answers 403: policy"},
		{[]string{"record", "api", "a", "--token-file", file, "--server-ca-file", ca}, nil, command.ExitError, "needs the scope record"},
		{[]string{"take", "api", "a", "--server-ca-file", ca}, nil, command.ExitError, "--token-file"},
		{[]string{"take", "api", "a", "--token-file", file}, nil, command.ExitError, "--server-ca-file"},
		{[]string{"take", "api", "a", "--token-file", file}, []string{"RATELIMITD_TOKEN=" + secret}, command.ExitError, "keep one of them"},
		{[]string{"take", "api", "a", "--token-file", ca, "--server-ca-file", ca}, nil, command.ExitError, "the token is not valid"},
		{[]string{"take", "api", "a", "--client-cert-file", ca}, nil, command.ExitError, "need each other"},
	} {
		var out, errs bytes.Buffer
		code := clitest.Run(context.Background(), append(c.args, "--server", s.URL), c.environ, strings.NewReader(""), &out, &errs)
		if said := out.String() + errs.String(); code != c.code || !strings.Contains(said, c.says) || strings.Contains(said, secret) {
			t.Errorf("%v: exit code %d, want %d with %q:\n%s", c.args, code, c.code, c.says, said)
		}
	}
}
