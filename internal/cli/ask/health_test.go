package ask_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func TestHealth(t *testing.T) {
	server := clitest.Start(t, nil)
	answering := func(status int, mediaType, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/readyz" { // which is asked for, and nothing else
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	gone := httptest.NewServer(nil)
	gone.Close()
	for _, test := range []struct {
		name, args     string
		code           int
		stdout, stderr string // parts of the output
	}{
		{"alive", "--server " + server.URL, command.ExitOK, "ok\n", ""},
		{"ready", "--ready --server " + server.URL, command.ExitOK, "ready\n", ""},
		{"ready, with a warning", "--ready --server " + answering(200, "application/json", `{"status":"ready","warnings":["disk"]}`),
			command.ExitOK, "ready\n", "ratelimitd: disk\n"},
		{"not ready", "--ready --server " + answering(503, "application/problem+json", `{"detail":"Not ready."}`),
			command.ExitFailure, "", "the server answers 503: Not ready."},
		{"not ratelimitd", "--ready --server " + answering(200, "text/html", "<html>"),
			command.ExitFailure, "", "does not answer as ratelimitd does"},
		{"gone", "--server " + gone.URL, command.ExitFailure, "", "cannot be reached"},
		{"a wrong flag", "--redy", command.ExitUsage, "", "did you mean --ready?"},
		{"an argument", "now", command.ExitUsage, "", "health takes no arguments"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code, stdout, stderr := clitest.Execute(t, nil, append([]string{"health"}, strings.Fields(test.args)...)...)
			if code != test.code || stdout != test.stdout || !strings.Contains(stderr, test.stderr) || (stderr == "") != (test.stderr == "") {
				t.Errorf("exit code %d, output %q, errors %q; want %d, %q and %q", code, stdout, stderr, test.code, test.stdout, test.stderr)
			}
		})
	}
}
