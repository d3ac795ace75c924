package gateways_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// caddyBinary builds Caddy, once for all tests: after the first time in a second, and the first time in a minute, without
// optimization, which takes another. What the program needs itself is as it is compiled already.
var caddyBinary = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "caddy")
	if err != nil {
		return "", err
	}
	caddyFolder = folder
	binary := filepath.Join(folder, "caddy")
	build := []string{"build", "-C", "caddy", "-ldflags=-s -w", "-o", binary}
	for _, flag := range append(strings.Fields(os.Getenv("GOFLAGS")), "-gcflags=github.com/...=-N -l -dwarf=false") {
		if strings.HasPrefix(flag, "-gcflags=") { // one on the command line replaces those of GOFLAGS
			build = append(build, flag)
		}
	}
	output, err := exec.Command("go", append(build, ".")...).CombinedOutput()
	if err != nil {
		err = errors.New("building Caddy from its module: " + err.Error() + "\n" + string(output))
	}
	return binary, err
})

// caddyFolder holds it; empty: nobody needed it.
var caddyFolder string

func TestMain(m *testing.M) {
	code := m.Run()
	if caddyFolder != "" {
		_ = os.RemoveAll(caddyFolder)
	}
	os.Exit(code)
}

// startCaddy runs a Caddy by the example, with these words in place of others.
func startCaddy(t *testing.T, b *behind, words ...string) *gateway {
	t.Helper()
	if testing.Short() {
		t.Skip("building Caddy takes minutes, the first time")
	}
	binary, err := caddyBinary()
	if err != nil {
		missing(t, err.Error())
	}
	folder := t.TempDir()
	config := filepath.Join(folder, "Caddyfile")
	return start(t, "serving initial configuration", func(address string) *exec.Cmd {
		writeExample(t, config, "caddy/Caddyfile", append(words,
			"127.0.0.1:8080", addressOf(b.ratelimitd), "127.0.0.1:3000", addressOf(b.app),
			"http://localhost:80", "http://"+address, "response_header_timeout 1s", "response_header_timeout "+b.patience))
		command := exec.Command(binary, "run", "--config", config, "--adapter", "caddyfile")
		command.Env = append(os.Environ(), "HOME="+folder, "XDG_CONFIG_HOME="+folder, "XDG_DATA_HOME="+folder)
		return command
	})
}

// TestCaddy asks ratelimitd about every request, and hands on its denials whole.
func TestCaddy(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startCaddy(t, b)
	b.mustCount(t, g)
	mustBeDenied(t, g.ask(t, http.MethodPost, "/a", "k"))
	g.mustServe(t, "another")
	g.mustServe(t, "") // by the address
	g.mustServe(t, "")
	mustBeDenied(t, g.ask(t, http.MethodGet, "/a", ""))
	for path, want := range map[string]int{"/forbidden": 403, "/broken": 500} {
		if a := g.ask(t, http.MethodGet, path, path); a.status != want || !strings.HasPrefix(a.body, "app: ") {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
}

// mustBeDenied looks for all that ratelimitd says of a denial.
func mustBeDenied(t *testing.T, a answer) {
	t.Helper()
	if a.status != http.StatusTooManyRequests || a.header.Get("Content-Type") != "application/problem+json" ||
		a.header.Get("X-RateLimit-Limit") != "2" || !strings.Contains(a.header.Get("RateLimit"), "r=0") ||
		!strings.HasPrefix(a.header.Get("Retry-After"), "3") || !strings.Contains(a.body, `"violated-policies":["sliding-log-1h"]`) {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
}

// TestCaddyPassesOnWhatWasCounted, of a header that is sent twice.
func TestCaddyPassesOnWhatWasCounted(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	b.mustPassOnWhatWasCounted(t, startCaddy(t, b))
}

// TestCaddyLimitsAddresses, whatever keys they send.
func TestCaddyLimitsAddresses(t *testing.T) {
	startCaddy(t, newBehind(t, "127.0.0.1")).mustLimitMadeUpKeys(t)
}

// TestCaddyTakesLargeBodies that the application takes.
func TestCaddyTakesLargeBodies(t *testing.T) {
	startCaddy(t, newBehind(t, "127.0.0.1")).mustTakeLargeBodies(t)
}

// TestCaddyAndPagesOfOtherOrigins (CORS).
func TestCaddyAndPagesOfOtherOrigins(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startCaddy(t, b)
	if a := b.mustExemptPreflights(t, g); !strings.HasPrefix(a.body, "app: OPTIONS /a ") ||
		a.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%v %q", a.header, a.body)
	}
	g.mustShareDenials(t)
	b.misbehave(misbehaviours["gone"])
	if a := g.send(t, http.MethodGet, "/a", "", "Origin", page); a.status != http.StatusServiceUnavailable ||
		a.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// TestCaddyWithoutADecision denies, or lets requests pass where its configuration says so.
func TestCaddyWithoutADecision(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	b.patience = "1s" // as the example has it
	closed, open := startCaddy(t, b), startCaddy(t, b, "\t\trespond @undecided", "\t\treverse_proxy @undecided "+addressOf(b.app)+"\n#")
	check := func(how string) {
		t.Helper()
		mustNotDecide(t, how, closed.ask(t, http.MethodPost, "/a", "k"))
		if a := open.ask(t, http.MethodGet, "/a?b=c", "k"); a.status != http.StatusOK || a.body != "app: GET /a?b=c " {
			t.Errorf("%s, open: %d %q", how, a.status, a.body)
		}
	}
	for how, answer := range misbehaviours {
		b.misbehave(answer)
		check(how)
	}
	b.misbehave(http.NotFound)
	if a := closed.ask(t, http.MethodGet, "/a", "k"); a.status != http.StatusNotFound || strings.HasPrefix(a.body, "app: ") {
		t.Errorf("another service: %d %q", a.status, a.body)
	}
	b.misbehave(nil)
	closed.mustServe(t, "k")
	b.ratelimitd.Close()
	check("nobody listens")
}

// TestCaddyThatIsNotTrusted serves nobody, so that it is noticed.
func TestCaddyThatIsNotTrusted(t *testing.T) {
	g := startCaddy(t, newBehind(t, "10.0.0.0/8"))
	if a := g.ask(t, http.MethodGet, "/a", "k"); a.status != http.StatusForbidden || !strings.Contains(a.body, "--trusted-proxies") {
		t.Errorf("%d %q", a.status, a.body)
	}
}
