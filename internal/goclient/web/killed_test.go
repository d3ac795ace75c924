package web_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/client/httplimit"
	"github.com/ratelimitd/ratelimitd/ratelimittest"
)

const serveVariable = "HTTPLIMIT_TEST_SERVE" // has a process of this test be the server that is killed

// TestMain runs the tests, or serves until it is killed.
func TestMain(m *testing.M) {
	if os.Getenv(serveVariable) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("serving", ratelimittest.New(process{}, volumes).URL)
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test that started it is gone
}

// process is the process of a server that runs outside the test.
type process struct{ testing.TB }

// Helper does nothing.
func (process) Helper() {}

// Cleanup does nothing: the server ends with the process.
func (process) Cleanup(func()) {}

// Fatalf ends the process.
func (process) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// startServer runs a ratelimitd as a process of its own, and returns where and how to kill it.
func startServer(t *testing.T) (url string, kill func()) {
	t.Helper()
	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), serveVariable+"=1")
	_, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	kill = func() {
		_ = server.Process.Kill() // it may be dead already
		_ = server.Wait()
	}
	t.Cleanup(kill)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url, ok := strings.CutPrefix(lines.Text(), "serving "); ok {
			return url, kill
		}
	}
	t.Fatal("the server says no address")
	return "", nil
}

// told has the calls of a hook.
type told struct{ calls, withPolicy, unavailable atomic.Uint64 }

func (h *told) note(call client.Call, err error) {
	h.calls.Add(1)
	if len(call.Demands) == 1 && call.Demands[0].Policy == "api" {
		h.withPolicy.Add(1)
	}
	if errors.Is(err, client.ErrUnavailable) {
		h.unavailable.Add(1)
	}
}

func (h *told) mustBe(t *testing.T, want, counted uint64) {
	t.Helper()
	if c, p, u := h.calls.Load(), h.withPolicy.Load(), h.unavailable.Load(); c != want || p != want || u != want || counted != want {
		t.Errorf("%d told, %d with their policy, %d as unavailable, %d counted; want %d", c, p, u, counted, want)
	}
}

// mustLog fails the test unless log has lines with text, a second apart, and names nobody.
func mustLog(t *testing.T, log *bytes.Buffer, text string, took time.Duration) {
	t.Helper()
	lines := strings.Count(log.String(), text)
	if most := int(took/time.Second) + 1; lines < 1 || lines > most {
		t.Errorf("%d lines %q in %v, want 1 to %d: %s", lines, text, took, most, log)
	}
	if strings.Contains(log.String(), "needle") {
		t.Errorf("the log says who asked: %s", log)
	}
}

// TestKilledServer has a server be killed. The client and the middleware fail open, and tell of
// each call: by a hook, by a count and by a line a second.
func TestKilledServer(t *testing.T) {
	url, kill := startServer(t)
	var clientLog, limitLog bytes.Buffer
	var clientTold, limitTold told
	open, err := client.New(url, &client.Options{
		OnUnavailable: client.FailOpen, Logger: slog.New(slog.NewTextHandler(&clientLog, nil)), FailedOpen: clientTold.note,
		Retries: 1, Timeout: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	plain, err := client.New(url, &client.Options{Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	limit := httplimit.New(plain, &httplimit.Options{
		Identify: httplimit.APIKey(), Logger: slog.New(slog.NewTextHandler(&limitLog, nil)),
		Undecided: func(_ *http.Request, call client.Call, err error) { limitTold.note(call, err) },
	})
	handler := limit.Policy("api")(echo)
	take := client.Call{Op: client.OpTake, Demands: []client.Demand{{Policy: "api", Identifier: "needle"}}}

	if d, err := open.Do(t.Context(), take); err != nil || !d.Allowed || d.Degraded {
		t.Errorf("alive: %+v, %v", d, err)
	}
	if res := send(handler, "needle", "x"); res.StatusCode != http.StatusOK || res.Header.Get("RateLimit") == "" {
		t.Errorf("alive: status %d, %v", res.StatusCode, res.Header)
	}
	clientTold.mustBe(t, 0, open.FailedOpen())
	limitTold.mustBe(t, 0, limit.Undecided())

	kill()
	const calls = 20
	began := time.Now()
	for range calls {
		if d, err := open.Do(t.Context(), take); err != nil || !d.Allowed || !d.Degraded {
			t.Errorf("killed: %+v, %v", d, err)
		}
		if res := send(handler, "needle", "x"); res.StatusCode != http.StatusOK || res.Header.Get("RateLimit") != "" {
			t.Errorf("killed: status %d, %v", res.StatusCode, res.Header)
		}
	}
	results, err := open.Batch(t.Context(), []client.Call{take, take})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || !r.Decision.Degraded {
			t.Errorf("killed: %+v", r)
		}
	}
	took := time.Since(began)
	clientTold.mustBe(t, calls+2, open.FailedOpen())
	limitTold.mustBe(t, calls, limit.Undecided())
	mustLog(t, &clientLog, "calls are allowed without a limit", took)
	mustLog(t, &limitLog, "requests pass without a limit", took)
}
