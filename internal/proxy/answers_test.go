package proxy_test

import (
	"bufio"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// answerWith is an application that writes text to each connection, and closes it.
func answerWith(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// TestTheLogRepeatsNoAnswer holds that the log quotes no answer of an application, however it fails: the answer may
// contain identifiers.
func TestTheLogRepeatsNoAnswer(t *testing.T) {
	const number = "+4915112345678"
	for _, c := range []struct{ answer, want string }{
		{number + "\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 " + number + " OK\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 200 OK\r\n" + number + "\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 200 OK\r\nContent-Length: " + number + "\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: " + number + "\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + number + "\r\n\r\n", "its answer cannot be used"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + number + "\r\n", "broke off"},
		{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + number + "\r\n\r\n", "broke off"},
		{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1", "broke off"},
		{"", "it closed the connection"},
	} {
		f := newFront(t, "- {path: /, limits: []}", answerWith(c.answer))
		_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, answers)
		f.wait()
		f.server.Close()
		if log := f.log.String(); !strings.Contains(log, c.want) || strings.Contains(log, "4915112345678") {
			t.Errorf("%q: %s", c.answer, log)
		}
	}
}

// TestTheLogTellsHowAnApplicationIsAway holds that the log has the reason why an application does not answer, without
// any of its words.
func TestTheLogTellsHowAnApplicationIsAway(t *testing.T) {
	for upstream, want := range map[string]string{
		"http://127.0.0.1:1": "connections are refused",
		"https://":           "the TLS handshake failed",
	} {
		f := newFront(t, "- {path: /, limits: []}", hello, func(o *proxy.Options) {
			if upstream == "https://" {
				upstream += o.Upstream.Host
			}
			o.Upstream, _ = url.Parse(upstream)
			o.UpstreamTimeout = time.Second
		})
		f.mustBe(http.StatusBadGateway, "GET", "/", "")
		f.server.Close()
		if log := f.log.String(); !strings.Contains(log, want) {
			t.Errorf("%s: %s", upstream, log)
		}
	}
}

// private are headers for the proxy only.
const private = "Connection: Keep-Alive, X-Mine, Upgrade\r\nX-Mine: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: Basic\r\n" +
	"Proxy-Connection: keep-alive\r\nTe: trailers\r\nX-RateLimit-Cost: 7\r\n"

// mustHold fails unless a head has all headers for clients, and no others.
func mustHold(t *testing.T, what string, h http.Header, want string) {
	t.Helper()
	for _, name := range []string{"X-Mine", "Keep-Alive", "Proxy-Authenticate", "Proxy-Connection", "Te", "X-Ratelimit-Cost"} {
		if h.Get(name) != "" {
			t.Errorf("%s has %s: %v", what, name, h)
		}
	}
	if h.Get(want) == "" {
		t.Errorf("%s has no %s: %v", what, want, h)
	}
}

// TestInterimAnswers holds that interim answers are passed on without the headers for the proxy only, to clients that
// understand them.
func TestInterimAnswers(t *testing.T) {
	const hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n" + private + "Upgrade: h2c\r\n\r\n"
	f := newFront(t, "- {path: /, limits: []}", answerWith(hints+
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Yours: 1\r\n"+private+"\r\nhi"))
	_, answers := f.dial("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, want := range []string{"Link", "X-Yours"} {
		res, err := http.ReadResponse(answers, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustHold(t, res.Status, res.Header, want)
		if res.Header.Get("Connection") != "" || res.Header.Get("Upgrade") != "" {
			t.Errorf("%s: %v", res.Status, res.Header)
		}
	}
	_, answers = f.dial("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	if line, err := answers.ReadString('\n'); !strings.Contains(line, " 200 ") || err != nil {
		t.Errorf("by HTTP/1.0: %s, %v", line, err)
	}
}

// TestAnswersToUpgrades holds that an answer to an upgrade has no hop-by-hop headers but those of the upgrade.
func TestAnswersToUpgrades(t *testing.T) {
	f := newFront(t, "- {path: /, limits: [{policy: sent, charge: request-bytes}]}",
		answerWith("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: 1\r\n"+private+"\r\n"))
	_, answers := f.dial(upgrade)
	res, err := http.ReadResponse(bufio.NewReader(answers), nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", res, err)
	}
	mustHold(t, res.Status, res.Header, "Sec-WebSocket-Accept")
	if res.Header.Get("Connection") != "Upgrade" || res.Header.Get("Upgrade") != "websocket" {
		t.Errorf("%v", res.Header)
	}
}
