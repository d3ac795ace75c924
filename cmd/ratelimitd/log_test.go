package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestServersLogNoAddresses of clients, and few failed handshakes.
func TestServersLogNoAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := serverLog(slog.New(slog.NewTextHandler(&text, nil)), slog.LevelWarn)
		for range 3 {
			log.Printf("http: TLS handshake error from %s: %v", "203.0.113.7:4711", errors.New("read tcp [::1]:80->[2001:db8::7%eth0]:4712: EOF"))
		}
		log.Printf("http: panic serving %v: %v", "[2001:db8::7]:4711", "an index")
		time.Sleep(time.Second)
		log.Printf("http: TLS handshake error from %s: later", "203.0.113.7:4711")
		if strings.Contains(text.String(), "203.0.113") || strings.Contains(text.String(), "db8") {
			t.Errorf("an address is in %s", text.String())
		}
		if n := strings.Count(text.String(), "handshake"); n != 2 || !strings.Contains(text.String(), "serving a client: an index") {
			t.Errorf("%d handshakes in %s", n, text.String())
		}
	})
}

// TestJSONFromTheFirstLineOn starts commands that fail at once: whatever is wrong, each line on
// standard error is JSON where that was asked for.
func TestJSONFromTheFirstLineOn(t *testing.T) {
	wrong := write(t, "policies.yaml", "policies:\n  - name: a\n  - name: b\n")
	configured := write(t, "serve.yaml", "log-format: json\nlisten: nowhere\nlisten-to: x\n")
	taken := start(t, nil)
	const inJSON = "--log-format=json"
	for name, c := range map[string]struct {
		args, environ []string
		says          string
	}{
		"a file of policies": {[]string{"serve", inJSON, "--policies", wrong}, nil, `"mistakes":`},
		"a variable":         {[]string{"serve", inJSON, "--data-dir=/dev/null"}, []string{"RATELIMITD_LISTEM=x"}, "is not read"},
		"the environment":    {[]string{"serve", "--policies", wrong}, []string{"RATELIMITD_LOG_FORMAT=json"}, `"mistakes":`},
		"a wrong variable":   {[]string{"serve"}, []string{"RATELIMITD_LOG_FORMAT=json", "RATELIMITD_LISTEN=x"}, "RATELIMITD_LISTEN"},
		"an unknown flag":    {[]string{"serve", inJSON, "--listem=x"}, nil, "listem"},
		"and before it":      {[]string{"serve", "--listem=x", "--log-format", "json"}, nil, "listem"},
		"a wrong value":      {[]string{"serve", "--listen=x", inJSON}, nil, "is no address"},
		"a configuration":    {[]string{"serve", "--config", configured}, nil, "listen-to"},
		"a port":             {[]string{"serve", inJSON, "--listen", strings.TrimPrefix(taken.url, "http://")}, nil, "in use"},
		"a missing flag":     {[]string{"proxy", inJSON}, nil, "--upstream"},
		"an argument":        {[]string{"serve", inJSON, "now"}, nil, "now"},
		"no Cassandra":       {[]string{"migrate", inJSON, "--cassandra-hosts=127.0.0.9:1"}, nil, "ERROR"},
	} {
		code, _, stderr := execute(t, c.environ, c.args...)
		if code == exitOK || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d:\n%s", name, code, stderr)
		}
		for line := range strings.Lines(stderr) {
			if !isJSON(line) {
				t.Errorf("%s: no JSON: %s", name, line)
			}
		}
	}
	if _, _, stderr := execute(t, []string{"RATELIMITD_LOG_FORMAT=json"}, "take", "a", "b", "--server", "http://127.0.0.9:1"); isJSON(stderr) {
		t.Errorf("what asks has no log: %s", stderr)
	}
}

func isJSON(line string) bool { return json.Valid([]byte(line)) }
