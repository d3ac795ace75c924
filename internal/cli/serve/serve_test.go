package serve_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// httpServers are the values of --http-server.
var httpServers = []string{"fast", "std"}

func TestServe(t *testing.T) {
	for _, by := range httpServers {
		t.Run(by, func(t *testing.T) {
			s := start(t, []string{"RATELIMITD_LISEN=x"}, "--http-server="+by)
			if got := s.Get(t, "/healthz"); got != http.StatusOK {
				t.Errorf("healthz: %d", got)
			}
			if got := s.Get(t, "/readyz"); got != http.StatusOK {
				t.Errorf("readyz: %d", got)
			}
			for i := range 6 {
				want := http.StatusOK
				if i == 5 {
					want = http.StatusTooManyRequests
				}
				if got := s.Take(t, "login"); got != want {
					t.Errorf("take %d: status %d, want %d", i+1, got, want)
				}
			}
			for _, want := range []string{
				`ratelimitd_decisions_total{`, `policy="login"`, "ratelimitd_http_request_duration_seconds", "go_goroutines",
			} {
				if got := s.Body(t, "/metrics"); !strings.Contains(got, want) {
					t.Errorf("no %s in the metrics:\n%s", want, got)
				}
			}
			s.Stop()
			if code := s.Wait(t); code != command.ExitOK {
				t.Errorf("exit code %d", code)
			}
			for _, want := range []string{"hashed by plain SHA-256", "RATELIMITD_LISEN is not read: did you mean RATELIMITD_LISTEN?", "stopped"} {
				if !strings.Contains(s.Log.String(), want) {
					t.Errorf("%q is not in the log:\n%s", want, s.Log)
				}
			}
			if strings.Contains(s.Log.String(), "4915112345678") {
				t.Errorf("an identifier is in the log:\n%s", s.Log)
			}
		})
	}
}

func policiesNamed(name string) string {
	return "policies: [{name: " + name + ", limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}]\n"
}

func TestReload(t *testing.T) {
	file := clitest.Write(t, "p.yaml", policiesNamed("first"))
	s := start(t, nil, "--policies", file)
	replace := func(text string) {
		t.Helper()
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	s.Log.WaitFor(t, "policies in force", 1)
	if got := s.Take(t, "first"); got != http.StatusOK {
		t.Fatalf("take: status %d", got)
	}

	replace(policiesNamed("second"))
	s.Log.WaitFor(t, "policies in force", 2)
	if first, second := s.Take(t, "first"), s.Take(t, "second"); first != http.StatusNotFound || second != http.StatusOK {
		t.Errorf("after a reload: the old policy %d, the new one %d", first, second)
	}

	replace("policies: [{name: third, limits: 10}, {name: fourth, limits: 11}]\n")
	s.Log.WaitFor(t, "those in force stay", 1)
	s.WaitForMetric(t, `ratelimitd_last_reload_successful{file="policies"} 0`)
	if logged := s.Log.String(); !strings.Contains(logged, "mistakes=2") ||
		!strings.Contains(logged, "p.yaml:1: policies[0].limits: a number where a list belongs: start each limit with a dash; ") ||
		!strings.Contains(logged, "p.yaml:1: policies[1].limits: a number where a list belongs") {
		t.Errorf("the mistakes are not in the log:\n%s", logged)
	}
	if got := s.Take(t, "second"); got != http.StatusOK {
		t.Errorf("after a bad reload: status %d", got)
	}

	replace(policiesNamed("fourth"))
	s.Log.WaitFor(t, "policies in force", 3)
	s.WaitForMetric(t, `ratelimitd_last_reload_successful{file="policies"} 1`)
	s.WaitForMetric(t, `ratelimitd_last_reload_success_timestamp_seconds{file="policies"} 1.`)
	s.WaitForMetric(t, fmt.Sprintf(`ratelimitd_build_info{go_version=%q,version="ratelimitd of a test"} 1`, runtime.Version()))
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.Log.WaitFor(t, "policies in force", 4)
	if got := s.Take(t, "fourth"); got != http.StatusOK {
		t.Errorf("after SIGHUP: status %d", got)
	}
}

func TestHangupWithoutAFileChangesNothing(t *testing.T) {
	s := start(t, nil)
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	s.Log.WaitFor(t, "there is no --policies file to read again", 1)
	if got := s.Take(t, "login"); got != http.StatusOK {
		t.Errorf("take: status %d", got)
	}
}

// A request whose body is still on its way when the signal comes is answered; new
// ones are not accepted.
func TestStoppingAnswersWhatIsInFlight(t *testing.T) {
	s := start(t, nil)
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	body := clitest.TakeBody("login")
	fmt.Fprintf(conn, "POST /v1/take HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n"+
		"Expect: 100-continue\r\n\r\n", len(body))
	if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
		t.Fatalf("before the body: %q, %v", line, err)
	}
	if _, err := answers.ReadString('\n'); err != nil { // the empty line after it
		t.Fatal(err)
	}
	s.Stop()
	s.Log.WaitFor(t, "stopping", 1)
	for deadline := time.Now().Add(clitest.Patience); ; {
		late, err := net.Dial("tcp", conn.RemoteAddr().String())
		if err != nil {
			break
		}
		_ = late.Close()
		if time.Now().After(deadline) {
			t.Fatal("still accepting connections")
		}
	}
	if _, err := io.WriteString(conn, body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatalf("no answer: %v\n%s", err, s.Log)
	}
	defer resp.Body.Close()
	var decision struct{ Allowed bool }
	if err := json.NewDecoder(resp.Body).Decode(&decision); err != nil || resp.StatusCode != http.StatusOK || !decision.Allowed {
		t.Errorf("answer: status %d, %+v, %v", resp.StatusCode, decision, err)
	}
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
}

func TestServeFailsWithOneWhenThePortIsTaken(t *testing.T) {
	s := start(t, nil)
	code, stdout, stderr := clitest.Execute(t, nil, "serve", "--listen", strings.TrimPrefix(s.URL, "http://"))
	if code != command.ExitFailure || stdout != "" || !strings.Contains(stderr, "address already in use") {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
}

func TestSettingsFromEverywhere(t *testing.T) {
	policies := clitest.Write(t, "p.yaml", policiesNamed("mine"))
	key := clitest.Write(t, "key", "k:00112233445566778899aabbccddeeff\n")
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	config := clitest.Write(t, "c.yaml", "policies: "+policies+"\nlog-format: text\nhash-key-file: "+key+"\n")
	s := start(t, []string{"RATELIMITD_LOG_FORMAT=json", "RATELIMITD_CONFIG=" + config})
	if got := s.Take(t, "mine"); got != http.StatusOK {
		t.Errorf("take: status %d", got)
	}
	log := s.Log.String()
	if !strings.HasPrefix(log, "{") || !strings.Contains(log, "everybody on this machine may read a secret") ||
		strings.Contains(log, "plain SHA-256") {
		t.Errorf("log:\n%s", log)
	}
}
