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

// Secret returns a secret from the text of a file or of the environment. It removes surrounding white space, such as
// the end of line that editors add.
func Secret(text string) string { return strings.TrimSpace(text) }

// othersRead is the permission of all users of the machine to read a file.
const othersRead = 0o004

// WarnOfReaders logs a warning if every user of this machine may read the secret in the file at path. what is the name
// of the setting. It does nothing for an empty path or a nil log.
func WarnOfReaders(what, path string, log *slog.Logger) {
	if path == "" || log == nil {
		return
	}
	if info, err := os.Stat(path); err == nil && info.Mode().Perm()&othersRead != 0 {
		log.Warn("everybody on this machine may read a secret: take the right from others, as by chmod o-r",
			"setting", what, "file", path, "mode", info.Mode().Perm())
	}
}
