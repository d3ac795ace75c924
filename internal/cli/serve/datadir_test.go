package serve_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// process is a serve command in a process of its own, which a test can kill.
type process struct {
	cmd *exec.Cmd
	url string
}

func startProcess(t *testing.T, flags ...string) *process {
	t.Helper()
	return launch(t, exec.Command(os.Args[0], append([]string{"serve", "--listen=127.0.0.1:0"}, flags...)...))
}

// launch starts cmd, which runs serve, and waits for its first line.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	cmd.Env = clitest.Environ()
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // most often it has ended
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no first line: %v", err)
	}
	return &process{cmd, strings.TrimPrefix(strings.TrimSpace(line), "listening on ")}
}

// startReady is startProcess for a process that may be asked at once.
func startReady(t *testing.T, flags ...string) *process {
	t.Helper()
	p := startProcess(t, flags...)
	for late := time.Now().Add(clitest.Patience); !p.isReady(t); <-time.After(10 * time.Millisecond) {
		if time.Now().After(late) {
			t.Fatalf("not ready within %v", clitest.Patience)
		}
	}
	return p
}

// metrics returns what p tells Prometheus.
func (p *process) metrics(t *testing.T) string {
	t.Helper()
	return clitest.Fetch(t, p.url+"/metrics")
}

// end sends signal and waits for the process to be gone.
func (p *process) end(t *testing.T, signal os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Wait(); (err == nil) != (signal == syscall.SIGTERM) {
		t.Errorf("after %v: %v", signal, err)
	}
}

// used makes a request and returns the used units after it.
func (p *process) used(t *testing.T, op, policy string) (used int64) {
	t.Helper()
	return p.post(t, op, clitest.TakeBody(policy)).Used
}

// answered is what tests read of an answer.
type answered struct {
	Used        int64
	Reservation string
	Receipt     string
}

func (p *process) post(t *testing.T, op, body string) (a answered) {
	t.Helper()
	resp, err := http.Post(p.url+"/v1/"+op, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil {
		t.Fatal(err)
	}
	return a
}

const bucketsAndWindows = `policies:
  - {name: log, limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}
  - {name: tail, limits: [{algorithm: sliding-tail, limit: 10, window: 31d}]}
  - {name: bucket, limits: [{algorithm: token-bucket, limit: 10, window: 24h}]}
`

// TestCountsOutliveTheProcess ends a process by a signal, with and without time to save
// before, and looks at what another one finds.
func TestCountsOutliveTheProcess(t *testing.T) {
	policies := clitest.Write(t, "p.yaml", bucketsAndWindows)
	for _, test := range []struct {
		name   string
		every  string
		signal os.Signal
		want   int64
	}{
		{"killed later than the interval", "50ms", syscall.SIGKILL, 4},
		{"killed within the interval", "1h", syscall.SIGKILL, 0},
		{"stopped within the interval", "1h", syscall.SIGTERM, 4},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "data")
			flags := []string{"--policies=" + policies, "--data-dir=" + folder, "--data-sync-interval=" + test.every}
			p := startProcess(t, flags...)
			for _, policy := range []string{"log", "tail", "bucket"} {
				for i := range int64(4) {
					if got := p.used(t, "take", policy); got != i+1 {
						t.Errorf("take %d under %s: used %d", i+1, policy, got)
					}
				}
			}
			<-time.After(1500 * time.Millisecond) // of the other process's time: many short intervals, and one by default
			p.end(t, test.signal)
			p = startProcess(t, flags...)
			for _, policy := range []string{"log", "tail", "bucket"} {
				if got := p.used(t, "check", policy); got != test.want {
					t.Errorf("after the restart under %s: used %d, want %d", policy, got, test.want)
				}
			}
			p.end(t, syscall.SIGTERM)
		})
	}
}

// TestStopGivesReservationsBack stops a process by SIGTERM while it holds units in counters
// and buckets, and looks at what another one finds. Holds of logs end at their time.
func TestStopGivesReservationsBack(t *testing.T) {
	text := "policies:\n"
	for _, name := range policy.Algorithms() {
		text += clitest.PolicyOf(name, 10)
	}
	policies := "--policies=" + clitest.Write(t, "p.yaml", text)
	t.Run("embedded", func(t *testing.T) {
		stopWithReservations(t, policies, "--data-dir="+t.TempDir())
	})
	t.Run("cassandra", func(t *testing.T) {
		stopWithReservations(t, onCassandra(t, policies)...)
	})
}

func stopWithReservations(t *testing.T, flags ...string) {
	t.Helper()
	p := startReady(t, flags...)
	left := make(map[string]string)
	for _, name := range policy.Algorithms() {
		reserve := strings.TrimSuffix(clitest.TakeBody(name), "}") + `, "reserve_ms": 60000}`
		settled, open := p.post(t, "check", reserve), p.post(t, "check", reserve)
		if open.Used != 2 || open.Reservation == "" {
			t.Fatalf("two reservations under %s: %+v", name, open)
		}
		p.post(t, "record", `{"reservation": "`+settled.Reservation+`"}`)
		left[name] = open.Reservation
	}
	p.end(t, syscall.SIGTERM)
	p = startReady(t, flags...)
	for name, reservation := range left {
		want := int64(1)
		if a, _ := policy.AlgorithmByName(name); a.Memory == policy.MemoryEvents {
			want = 2
		}
		if got := p.used(t, "check", name); got != want {
			t.Errorf("after the restart under %s: used %d, want %d", name, got, want)
		}
		if got := p.post(t, "record", `{"reservation": "`+reservation+`"}`).Used; got != 2 {
			t.Errorf("settled after the restart under %s: used %d, want 2", name, got)
		}
	}
	p.end(t, syscall.SIGTERM)
}

func TestTwoProcessesDoNotShareAFolder(t *testing.T) {
	folder := t.TempDir()
	s := start(t, []string{"RATELIMITD_DATA_DIR=" + folder})
	code, stdout, stderr := clitest.Execute(t, nil, "serve", "--listen=127.0.0.1:0", "--data-dir", folder)
	want := "--data-dir: " + filepath.Join(folder, "ratelimitd.db") + " is in use by another process"
	if code != command.ExitFailure || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d", code)
	}
}
