package command

import (
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// ReadSecret returns the secret in the file at path, as Secret does, and warns log as WarnOfReaders does. The error
// begins with what, such as "--peer-secret-file".
func ReadSecret(what, path string, log *slog.Logger) (string, error) {
	WarnOfReaders(what, path, log)
	data, err := yamlfile.Read(path)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	secret := Secret(string(data))
	if secret == "" {
		return "", fmt.Errorf("%s: %s is empty: write the secret to it", what, path)
	}
	return secret, nil
}

// Secret returns what text, of a file or of the environment, says as a secret: without white space around it. Editors
// end the last line, and those of Windows with two bytes.
func Secret(text string) string { return strings.TrimSpace(text) }

// othersRead is the right of everybody on the machine to read a file.
const othersRead = 0o004

// WarnOfReaders warns log if everybody on this machine may read the secret in the file at path. what is the name of the
// file's setting. An empty path is none; a nil log is not warned.
func WarnOfReaders(what, path string, log *slog.Logger) {
	if path == "" || log == nil {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&othersRead != 0 {
		log.Warn("everybody on this machine may read a secret: take the right from others, as by chmod o-r",
			"setting", what, "file", path, "mode", info.Mode().Perm())
	}
}
