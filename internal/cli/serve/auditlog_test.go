package serve

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAuditLogIsOpenedAnew moves the file away, as logrotate does, and has reloads in it.
func TestAuditLogIsOpenedAnew(t *testing.T) {
	folder := t.TempDir()
	path, log := filepath.Join(folder, "audit.json"), slog.New(slog.DiscardHandler)
	audit, err := openAuditLog(path, nil, log)
	if err != nil {
		t.Fatal(err)
	}
	audit.reloaded("policies", "file", nil, nil)
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	audit.reloaded("callers", "file", os.ErrNotExist, nil)
	audit.reload()
	audit.reloaded("certificates", "file", nil, nil)
	first, _ := os.ReadFile(path + ".1")
	second, _ := os.ReadFile(path)
	if strings.Count(string(first), "\n") != 2 || !strings.Contains(string(first), `"act":"callers.reload","who":"file","outcome":"failed"`) {
		t.Errorf("in the file that was moved away:\n%s", first)
	}
	if strings.Count(string(second), "\n") != 1 || !strings.Contains(string(second), `"certificates.reload"`) {
		t.Errorf("in the new one:\n%s", second)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := openAuditLog(filepath.Join(folder, "none", "audit.json"), nil, log); err == nil {
		t.Error("a file in a folder that is not there was opened")
	}
}
