package gateways_test

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// startNginx runs the system's nginx by the example, with these words in place of others.
func startNginx(t *testing.T, b *behind, words ...string) *gateway {
	t.Helper()
	binary, err := exec.LookPath("nginx")
	if err != nil {
		binary, err = exec.LookPath("/usr/sbin/nginx") // which is not on everybody's PATH
	}
	if err != nil {
		missing(t, "there is no nginx: apt-get install nginx-light")
	}
	folder := t.TempDir()
	config := filepath.Join(folder, "nginx.conf")
	return start(t, "start worker process ", func(address string) *exec.Cmd {
		writeExample(t, config, "nginx/nginx.conf", append(words,
			"127.0.0.1:8080", addressOf(b.ratelimitd), "127.0.0.1:3000", addressOf(b.app), "listen 80;", "listen "+address+";",
			"http {", "http {\naccess_log off;"+temporary, "proxy_read_timeout 1s;", "proxy_read_timeout "+b.patience+";"))
		return exec.Command(binary, "-p", folder, "-c", config, "-e", "stderr",
			"-g", "daemon off; worker_processes 1; error_log stderr notice; pid nginx.pid;")
	})
}

// temporary keeps nginx's files within its folder.
const temporary = "client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;"

// TestNginx checks that nginx asks ratelimitd about every request, and passes its answers on to clients.
func TestNginx(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startNginx(t, b)
	b.mustCount(t, g)
	a := g.ask(t, http.MethodPost, "/a", "k")
	if a.status != http.StatusTooManyRequests || !strings.Contains(a.body, "quota-exceeded") ||
		a.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(a.header.Get("RateLimit"), "r=0") {
		t.Errorf("%d %v %q", a.status, a.header, a.body)
	}
	if after := a.header.Get("Retry-After"); after != "3600" && after != "3599" && after != "3598" {
		t.Errorf("Retry-After: %q", after)
	}
	g.mustServe(t, "another")
	g.mustServe(t, "") // by the address
	g.mustServe(t, "")
	if a := g.ask(t, http.MethodGet, "/a", ""); a.status != http.StatusTooManyRequests {
		t.Errorf("without a key: %d", a.status)
	}
}

// TestNginxLeavesTheApplicationsErrors as they are.
func TestNginxLeavesTheApplicationsErrors(t *testing.T) {
	g := startNginx(t, newBehind(t, "127.0.0.1"))
	for path, want := range map[string]int{"/forbidden": 403, "/broken": 500} {
		if a := g.ask(t, http.MethodGet, path, path); a.status != want || !strings.HasPrefix(a.body, "app: ") {
			t.Errorf("%s: %d %q", path, a.status, a.body)
		}
	}
}

// TestNginxPassesOnWhatWasCounted, of a header that is sent twice.
func TestNginxPassesOnWhatWasCounted(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	b.mustPassOnWhatWasCounted(t, startNginx(t, b))
	b.mustPassOnWhatWasCounted(t, startNginx(t, b, "error_page 500 = @undecided", "error_page 500 = @unlimited"))
}

// TestNginxLimitsAddresses, whatever keys they send.
func TestNginxLimitsAddresses(t *testing.T) {
	startNginx(t, newBehind(t, "127.0.0.1")).mustLimitMadeUpKeys(t)
}

// TestNginxTakesLargeBodies where its configuration of the application says so.
func TestNginxTakesLargeBodies(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	startNginx(t, b, "location / {", "location / {\nclient_max_body_size 10m; client_body_buffer_size 10m;").mustTakeLargeBodies(t)
	a := startNginx(t, b).send(t, http.MethodPost, "/a", strings.Repeat("x", 2<<20), "X-Api-Key", "k")
	if a.status != http.StatusRequestEntityTooLarge {
		t.Errorf("by nginx's own default: %d %q", a.status, a.body)
	}
}

// TestNginxAndPagesOfOtherOrigins (CORS).
func TestNginxAndPagesOfOtherOrigins(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	g := startNginx(t, b)
	if a := b.mustExemptPreflights(t, g); a.body != "app: OPTIONS /a " || a.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%v %q", a.header, a.body)
	}
	g.mustShareDenials(t)
	b.misbehave(misbehaviours["gone"])
	if a := g.send(t, http.MethodGet, "/a", "", "Origin", page); a.status != http.StatusServiceUnavailable ||
		a.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("%d %v", a.status, a.header)
	}
}

// TestNginxWithoutADecision denies, or lets requests pass where its configuration says so.
func TestNginxWithoutADecision(t *testing.T) {
	b := newBehind(t, "127.0.0.1")
	b.patience = "1s" // as the example has it
	closed, open := startNginx(t, b), startNginx(t, b, "error_page 500 = @undecided", "error_page 500 = @unlimited")
	check := func(how string) {
		t.Helper()
		mustNotDecide(t, how, closed.ask(t, http.MethodPost, "/a", "k"))
		open.mustServe(t, "k")
	}
	for how, answer := range misbehaviours {
		b.misbehave(answer)
		check(how)
	}
	b.misbehave(http.NotFound)
	check("another service")
	b.misbehave(nil)
	closed.mustServe(t, "k")
	b.ratelimitd.Close()
	check("nobody listens")
}

// TestNginxThatIsNotTrusted serves nobody, so that it is noticed.
func TestNginxThatIsNotTrusted(t *testing.T) {
	g := startNginx(t, newBehind(t, "10.0.0.0/8"))
	if a := g.ask(t, http.MethodGet, "/a", "k"); a.status != http.StatusInternalServerError {
		t.Errorf("%d %q", a.status, a.body)
	}
}
