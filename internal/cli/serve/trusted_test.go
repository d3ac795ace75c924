package serve_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// forwardedFor asks for path as a proxy does that forwards for an address.
func forwardedFor(t *testing.T, url, address string) (status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Forwarded-For", address)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

// TestForwardAuthBesideCallers trusts whom --trusted-proxies names: it asks for no token, and
// where all others must show one, to be on this machine is not enough.
func TestForwardAuthBesideCallers(t *testing.T) {
	const file = "callers:\n  - {name: a, token_sha256: %s, scopes: [decide], policies: any}\n"
	callers := "--auth-file=" + clitest.Write(t, "callers.yaml", fmt.Sprintf(file, auth.Digest("t")))
	for _, c := range []struct {
		environ, flags []string
		want           int
	}{
		{nil, nil, 200},
		{nil, []string{callers}, 403},
		{nil, []string{callers, "--trusted-proxies=127.0.0.1"}, 200},
		{[]string{"RATELIMITD_TRUSTED_PROXIES=127.0.0.0/8"}, []string{callers}, 200},
		{nil, []string{callers, "--trusted-proxies=none"}, 403},
	} {
		s := start(t, c.environ, c.flags...)
		if got := forwardedFor(t, s.URL+"/v1/forward-auth?policy=login", "203.0.113.7"); got != c.want {
			t.Errorf("%v, %v: %d, want %d", c.environ, c.flags, got, c.want)
		}
	}
	s, url := startProxy(t, nil, callers, "--config="+clitest.Write(t, "proxy.yaml", proxied), "--upstream="+application(t))
	for i := range 8 { // what is in front of the proxy is believed: each of its clients has a limit of its own
		if got := forwardedFor(t, url, fmt.Sprintf("203.0.113.%d", i)); got != 200 {
			t.Errorf("client %d: %d", i, got)
		}
	}
	if got := forwardedFor(t, s.URL+"/v1/forward-auth?policy=login", "203.0.113.7"); got != 403 {
		t.Errorf("beside the proxy: %d", got)
	}
}

// TestCallersWithoutPolicies are told of when they are read.
func TestCallersWithoutPolicies(t *testing.T) {
	const file = "callers:\n  - {name: half, token_sha256: %s, scopes: [decide]}\n"
	s := start(t, nil, "--auth-file="+clitest.Write(t, "callers.yaml", fmt.Sprintf(file, auth.Digest("t"))))
	s.Log.WaitFor(t, "callers=[half]", 1)
	if code, _, stderr := clitest.Execute(t, []string{"RATELIMITD_TOKEN=t"}, "take", "login", "a",
		"--server="+s.URL); code != command.ExitError ||
		!strings.Contains(stderr, "403") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}
