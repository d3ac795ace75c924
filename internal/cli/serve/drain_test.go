package serve_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// leaver is a client that sends one request after the other on its connection, and connects anew
// when it was told that an answer is the connection's last.
type leaver struct {
	address string
	request string
	began   func() // called after each answer

	conn    net.Conn
	answers *bufio.Reader
	sent    int // on conn
}

// run returns nil once nobody accepts connections any more, and what is wrong with any request
// that was sent and has no answer.
func (l *leaver) run() error {
	for {
		if l.conn == nil {
			conn, err := net.Dial("tcp", l.address)
			if err != nil {
				return nil //nolint:nilerr // the service is gone, as it should be
			}
			_ = conn.SetDeadline(time.Now().Add(clitest.Patience))
			l.conn, l.answers, l.sent = conn, bufio.NewReader(conn), 0
		}
		last, err := l.call()
		if err != nil || last {
			_ = l.conn.Close()
			l.conn = nil
		}
		if err != nil {
			return fmt.Errorf("request %d of a connection: %w", l.sent, err)
		}
		l.began()
	}
}

// call sends one request, and reports whether its answer is the connection's last.
func (l *leaver) call() (last bool, err error) {
	l.sent++
	if _, err := io.WriteString(l.conn, l.request); err != nil {
		return false, err
	}
	res, err := http.ReadResponse(l.answers, nil)
	if err != nil {
		return false, err
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return false, err
	}
	if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusTooManyRequests {
		return false, errors.New(res.Status)
	}
	return res.Close, nil
}

// TestStoppingLosesNoRequest stops a service that 64 clients never stop asking: each request that
// was sent is answered, those on fresh connections too, until nobody can connect.
func TestStoppingLosesNoRequest(t *testing.T) {
	const clients = 64
	kinds := []string{request("/v1/take", clitest.TakeBody("sms-send")), "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"}
	config := clitest.Write(t, "proxy.yaml", proxied+"upstream: "+application(t)+"\n")
	for name, begin := range map[string]func(t *testing.T) (s *server, url string){
		"fast":  func(t *testing.T) (*server, string) { s := start(t, nil, "--http-server=fast"); return s, s.URL },
		"std":   func(t *testing.T) (*server, string) { s := start(t, nil, "--http-server=std"); return s, s.URL },
		"proxy": func(t *testing.T) (*server, string) { return startProxy(t, nil, "--config="+config) },
	} {
		t.Run(name, func(t *testing.T) {
			s, url := begin(t)
			var begun atomic.Int64
			var all sync.WaitGroup
			failed := make(chan error, clients)
			for i := range clients {
				all.Go(func() {
					began := sync.OnceFunc(func() { begun.Add(1) })
					l := &leaver{address: strings.TrimPrefix(url, "http://"), request: kinds[i%len(kinds)], began: began}
					failed <- l.run()
				})
			}
			waitUntil(t, func() bool { return begun.Load() == clients })
			s.Stop()
			all.Wait()
			close(failed)
			lost := 0
			for err := range failed {
				if err != nil {
					lost++
					t.Log(err)
				}
			}
			if lost > 0 {
				t.Errorf("%d of %d clients sent a request that was not answered", lost, clients)
			}
			if code := s.Wait(t); code != command.ExitOK {
				t.Errorf("exit code %d", code)
			}
			if strings.Contains(s.Log.String(), "cut off") {
				t.Errorf("requests were cut off:\n%s", s.Log)
			}
		})
	}
}
