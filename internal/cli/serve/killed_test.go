package serve_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
)

// TestReservationsOfAKilledProcess kills a process that holds units, and waits for the next one to
// free them when they would have been freed.
func TestReservationsOfAKilledProcess(t *testing.T) {
	flags := []string{
		"--policies=" + clitest.Write(t, "p.yaml", bucketsAndWindows), "--data-dir=" + t.TempDir(), "--data-sync-interval=50ms",
	}
	p := startProcess(t, flags...)
	ends := time.Now().Add(3 * time.Second)
	for _, policy := range []string{"log", "tail", "bucket"} {
		body := strings.TrimSuffix(clitest.TakeBody(policy), "}") + `, "reserve_ms": 3000}`
		resp, err := http.Post(p.url+"/v1/check", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	<-time.After(time.Second) // of the other process's time: many intervals
	p.end(t, syscall.SIGKILL)
	p = startProcess(t, flags...)
	for _, policy := range []string{"log", "tail", "bucket"} {
		if got := p.used(t, "check", policy); got != 1 && time.Now().Before(ends) {
			t.Errorf("after the restart under %s: used %d, want the one that is held", policy, got)
		}
	}
	for _, policy := range []string{"log", "tail", "bucket"} {
		for deadline := ends.Add(20 * time.Second); p.used(t, "check", policy) > 0; <-time.After(50 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: what was held is not freed", policy)
			}
		}
	}
	p.end(t, syscall.SIGTERM)
}
