package command

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSecretsAreReadAlike holds that no line end is part of a secret, and that a file which everybody may read is warned of.
func TestSecretsAreReadAlike(t *testing.T) {
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string // empty: it is refused
		warn bool
	}{
		{"secret\n", 0o600, "secret", false},
		{"secret\r\n", 0o640, "secret", false},
		{" secret\t\r\n\r\n", 0o644, "secret", true},
		{"\r\n", 0o600, "", false},
	} {
		path := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, c.mode); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		got, err := ReadSecret("--secret-file", path, slog.New(slog.NewTextHandler(&log, nil)))
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%q is read as %q, %v; want %q", c.text, got, err, c.want)
		}
		if err != nil && !strings.Contains(err.Error(), "--secret-file") {
			t.Errorf("%v does not name the flag", err)
		}
		if warned := strings.Contains(log.String(), "setting=--secret-file"); warned != c.warn {
			t.Errorf("mode %v: warned is %v: %s", c.mode, warned, &log)
		}
	}
}
