package serve

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// TestServersLogNoAddresses of clients, and one line a second of what each of them can cause.
func TestServersLogNoAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := (&service{process: &command.Process{Now: time.Now}, log: slog.New(slog.NewTextHandler(&text, nil))}).serverLog(slog.LevelWarn)
		for range 3 {
			log.Printf("http: TLS handshake error from %s: %v", "203.0.113.7:4711", errors.New("read tcp [::1]:80->[2001:db8::7%eth0]:4712: EOF"))
		}
		log.Printf("http: panic serving %v: %v", "[2001:db8::7]:4711", "an index")
		time.Sleep(time.Second)
		log.Printf("http: TLS handshake error from %s: later", "203.0.113.7:4711")
		for range 3 {
			log.Printf("http2: server: error reading preface from client %v: EOF", "203.0.113.7:4711")
		}
		if strings.Contains(text.String(), "203.0.113") || strings.Contains(text.String(), "db8") {
			t.Errorf("an address is in %s", text.String())
		}
		if n := strings.Count(text.String(), "preface"); n != 1 || !strings.Contains(text.String(), "2 more lines") {
			t.Errorf("%d lines of prefaces, want 1, and handshakes that say how many more there were: %s", n, text.String())
		}
		if n := strings.Count(text.String(), "handshake"); n != 2 || !strings.Contains(text.String(), "serving a client: an index") {
			t.Errorf("%d handshakes in %s", n, text.String())
		}
	})
}
