package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/audit"
	"github.com/ratelimitd/ratelimitd/internal/auth"
)

// auditLog writes a line for each action of an administrator: as JSON to a file, which is reopened on SIGHUP so that it
// can be rotated, or else to standard error in the format of the log.
type auditLog struct {
	*audit.Log
	path string // empty: standard error
	log  *slog.Logger

	mu   sync.Mutex
	also []func(line []byte) // each gets a copy of every line
	file *os.File            // nil: standard error
}

// openAuditLog opens the file at path, or has stderr take every line if path is empty. Lines that can't be written are
// reported to log.
func openAuditLog(path string, stderr slog.Handler, log *slog.Logger) (*auditLog, error) {
	a := &auditLog{path: path, log: log}
	var lines slog.Handler = slog.NewJSONHandler(a, nil)
	if path == "" {
		a.Log = audit.New(slog.New(slog.NewMultiHandler(lines, stderr)), time.Now)
		return a, nil
	}
	a.Log = audit.New(slog.New(lines), time.Now)
	return a, a.open()
}

// open opens the file, and closes the one before.
func (a *auditLog) open() error {
	file, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--audit-log: %w", err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		_ = a.file.Close() // every line was written whole
	}
	a.file = file
	return nil
}

// Write writes one line of JSON to the file, if there is one.
func (a *auditLog) Write(line []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, also := range a.also {
		also(line)
	}
	if a.file == nil {
		return len(line), nil
	}
	n, err := a.file.Write(line)
	if err != nil {
		a.log.Error("the audit log cannot be written", "error", err)
	}
	return n, err
}

// tee passes a copy of every later line to also.
func (a *auditLog) tee(also func(line []byte)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.also = append(a.also, also)
}

// reload reopens the file. If that fails, the open one stays in use.
func (a *auditLog) reload() {
	if a.path == "" {
		return
	}
	if err := a.open(); err != nil {
		a.log.Error("the audit log cannot be reopened", "error", err)
	}
}

// reloaded reports the reload of a file that has changed, or of a version in the store, its author, and its changes,
// where they are known.
func (a *auditLog) reloaded(what, who string, err error, made *changes) {
	act := &audit.Act{Name: what + ".reload", Who: who, Failed: err != nil} // why is in the log
	if made != nil {
		act.More = made.attrs()
	}
	a.Did(context.Background(), act)
}

// refused logs a refused request to the listener for Envoy.
func (a *auditLog) refused(ctx context.Context, caller string, err error) {
	reason := auth.ErrForbidden
	for _, known := range []error{auth.ErrNoToken, auth.ErrUnknownToken, auth.ErrNotBearer} {
		if errors.Is(err, known) {
			reason = known
		}
	}
	a.Refused(ctx, &audit.Refusal{Who: caller, Where: "envoy", Reason: reason.Error()})
}
