package main

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
)

// process is a serve command in a process of its own, which a test can kill.
type process struct {
	cmd *exec.Cmd
	url string
}

func startProcess(t *testing.T, flags ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], append([]string{"serve", "--listen=127.0.0.1:0"}, flags...)...)
	cmd.Env = append(os.Environ(), beMain+"=1")
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

// used makes a request and returns what is used then.
func (p *process) used(t *testing.T, op, policy string) (used int64) {
	t.Helper()
	resp, err := http.Post(p.url+"/v1/"+op, "application/json", strings.NewReader(takeBody(policy)))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var decision struct{ Used int64 }
	if err := json.NewDecoder(resp.Body).Decode(&decision); err != nil {
		t.Fatal(err)
	}
	return decision.Used
}

const bucketsAndWindows = `policies:
  - {name: log, limits: [{algorithm: sliding-log, limit: 10, window: 1h}]}
  - {name: tail, limits: [{algorithm: sliding-tail, limit: 10, window: 31d}]}
  - {name: bucket, limits: [{algorithm: token-bucket, limit: 10, window: 24h}]}
`

// TestCountsOutliveTheProcess ends a process by a signal, with and without time to save
// before, and looks at what another one finds.
func TestCountsOutliveTheProcess(t *testing.T) {
	policies := writeFile(t, "p.yaml", bucketsAndWindows)
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

func TestTwoProcessesDoNotShareAFolder(t *testing.T) {
	folder := t.TempDir()
	s := start(t, []string{"RATELIMITD_DATA_DIR=" + folder})
	code, stdout, stderr := execute(t, nil, "serve", "--listen=127.0.0.1:0", "--data-dir", folder)
	want := "--data-dir: " + filepath.Join(folder, "ratelimitd.db") + " is in use by another process"
	if code != exitFailure || stdout != "" || !strings.Contains(stderr, want) {
		t.Errorf("exit code %d, output %q, errors %q", code, stdout, stderr)
	}
	s.stop()
	if code := s.wait(t); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}
