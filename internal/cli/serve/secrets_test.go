package serve_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestEverySecretFileIsWarnedOf names each file of a secret, all of which everybody may read.
func TestEverySecretFileIsWarnedOf(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("none of these\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(secret, 0o644); err != nil {
		t.Fatal(err)
	}
	cassandra := []string{"--store=cassandra", "--cassandra-hosts=127.0.0.9:1"}
	for flag, more := range map[string][]string{
		"--hash-key-file":           nil,
		"--events-secret-file":      {"--events-url=https://example.invalid"},
		"--tls-key-file":            {"--tls-cert-file=" + secret},
		"--peer-secret-file":        append(cassandra, "--peer-listen=127.0.0.1:0"),
		"--cassandra-password-file": append(cassandra, "--cassandra-username=a"),
		"--cassandra-tls-key":       append(cassandra, "--cassandra-tls", "--cassandra-tls-cert="+secret),
	} {
		args := append([]string{"serve", "--listen=nowhere.invalid:0", "--insecure-no-auth", flag + "=" + secret}, more...)
		_, _, stderr := clitest.Execute(t, nil, args...)
		if !strings.Contains(stderr, "everybody on this machine may read a secret") || !strings.Contains(stderr, "setting="+flag) {
			t.Errorf("%s: no warning:\n%s", flag, stderr)
		}
	}
	_, _, stderr := clitest.Execute(t, nil, "take", "a", "b", "--server=http://127.0.0.9:1", "--token-file="+secret)
	if !strings.Contains(stderr, "setting=--token-file") {
		t.Errorf("--token-file: no warning:\n%s", stderr)
	}
}

// TestTokenWithALineEnd shows a token that an editor of Windows ended.
func TestTokenWithALineEnd(t *testing.T) {
	callers := clitest.Write(t, "callers.yaml",
		"callers:\n  - {name: a, token_sha256: "+auth.Digest("token-of-a")+", scopes: [decide], policies: any}\n")
	s := start(t, nil, "--auth-file="+callers)
	if got := s.Asked(t, "token-of-a"); got == http.StatusUnauthorized {
		t.Fatalf("status %d", got)
	}
	code, _, stderr := clitest.Execute(t, []string{command.TokenVariable + "=token-of-a\r\n"}, "check", "login", "b", "--server="+s.URL)
	if code != command.ExitOK {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
