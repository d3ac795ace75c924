//go:build linux

package serve_test

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// disk returns a folder on a disk of its own, which has so much space.
func disk(t *testing.T, space string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size="+space); err != nil {
		t.Skipf("only who may mount a disk can fill one: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(folder, syscall.MNT_DETACH) })
	return folder
}

// takeOf makes a take for an identifier of its own.
func (s *server) takeOf(t *testing.T, i int) {
	t.Helper()
	body := fmt.Sprintf(`{"policy": "log", "identifier": "%d"}`, i)
	resp, err := http.Post(s.URL+"/v1/take", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("take %d: %d", i, resp.StatusCode)
	}
}

// TestFullDisk fills the disk of --data-dir: decisions go on, and readyz and the metrics say that
// nothing is saved, until there is space.
func TestFullDisk(t *testing.T) {
	folder := disk(t, "512k")
	policies := clitest.Write(t, "p.yaml", bucketsAndWindows)
	flags := []string{"--policies=" + policies, "--data-dir=" + filepath.Join(folder, "data"), "--data-sync-interval=50ms"}
	s := start(t, nil, flags...)
	if body := s.Body(t, "/readyz"); strings.Contains(body, "warnings") {
		t.Errorf("readyz: %s", body)
	}
	s.WaitForMetric(t, "ratelimitd_data_unsaved_seconds 0\n")
	takes := 0
	for strings.Contains(s.Body(t, "/metrics"), "ratelimitd_data_save_failures_total 0\n") {
		for range 500 {
			s.takeOf(t, takes)
			takes++
		}
		if takes >= 20_000 {
			t.Fatalf("%d takes don't fill the disk", takes)
		}
	}
	if s.Get(t, "/readyz") != http.StatusOK || !strings.Contains(s.Body(t, "/readyz"), `"warnings":["counts can't be saved in --data-dir`) {
		t.Errorf("readyz: %s", s.Body(t, "/readyz"))
	}
	if metrics := s.Body(t, "/metrics"); strings.Contains(metrics, "ratelimitd_data_unsaved_seconds 0\n") {
		t.Error("the metrics say that all is saved")
	}
	if err := syscall.Mount("tmpfs", folder, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	s.WaitForMetric(t, "ratelimitd_data_unsaved_seconds 0\n")
	if body := s.Body(t, "/readyz"); strings.Contains(body, "warnings") {
		t.Errorf("readyz with space: %s", body)
	}
	s.Stop()
	if code := s.Wait(t); code != command.ExitOK {
		t.Errorf("exit code %d:\n%s", code, s.Log)
	}
	s = start(t, nil, flags...)
	s.Log.WaitFor(t, fmt.Sprintf("keys=%d", takes+1), 1) // and the secret of receipts
}
