package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
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

// TestAuditLinesFollowTheLogFormat of the log that they are in, whatever its level.
func TestAuditLinesFollowTheLogFormat(t *testing.T) {
	for format, want := range map[string]string{
		"text": "level=INFO msg=audit act=callers.reload who=file outcome=failed\n",
		"json": `"level":"INFO","msg":"audit","act":"callers.reload","who":"file","outcome":"failed"}` + "\n",
	} {
		set := new(settings.Settings)
		flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
		set.AddCommonFlags(flags)
		if err := flags.Parse([]string{"--log-format=" + format, "--log-level=error"}); err != nil {
			t.Fatal(err)
		}
		var text, told bytes.Buffer
		log, err := openAuditLog("", set.LogHandler(&text, slog.LevelInfo), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		log.tee(func(line []byte) { told.Write(line) })
		log.reloaded("callers", "file", errors.New("a mistake"), nil)
		if !strings.HasSuffix(text.String(), want) {
			t.Errorf("%s: %s", format, &text)
		}
		if !json.Valid(told.Bytes()) {
			t.Errorf("%s: the live page is told %s", format, &told)
		}
	}
}
