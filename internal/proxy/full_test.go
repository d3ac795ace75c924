package proxy_test

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// overHTTP2 returns a client of f that sends all requests on one connection.
func (f *front) overHTTP2() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", f.server.Listener.Addr().String())
		},
	}
	f.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// occupied is an application that answers when it is told to.
type occupied struct {
	came  chan struct{}
	leave chan struct{}
}

func newOccupied() *occupied { return &occupied{make(chan struct{}, 1000), make(chan struct{})} }

func (o *occupied) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	o.came <- struct{}{}
	<-o.leave
	_, _ = io.WriteString(w, "hello")
}

// TestAFullProxy holds that a full proxy refuses requests before they count, on however few connections, and has no
// more connections to the application than requests.
func TestAFullProxy(t *testing.T) {
	for _, scheme := range []string{"http", "h2c"} {
		t.Run(scheme, func(t *testing.T) { testAFullProxy(t, scheme) })
	}
}

func testAFullProxy(t *testing.T, scheme string) {
	const most = 3
	var reached sync.Map
	app, dialed := newOccupied(), make(chan struct{}, 1000)
	f := newFront(t, "- {path: /, limits: [{policy: bytes}]}", app.ServeHTTP, func(o *proxy.Options) {
		o.MaxRequests, o.Reached = most, func(b connections.Bound) { reached.Store(b, true) }
		o.Upstream = watched(t, &url.URL{Scheme: scheme, Host: application(t, app)}, dialed)
	})
	client := f.overHTTP2()
	var asked sync.WaitGroup
	for range most {
		asked.Go(func() {
			if res, err := client.Do(f.request("GET", "/", "")); err != nil || res.StatusCode != http.StatusOK {
				t.Errorf("%v, %v", res, err)
			} else {
				_ = res.Body.Close()
			}
		})
	}
	for range most {
		<-app.came
	}
	for range 2 {
		res, err := client.Do(f.request("GET", "/", ""))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != 503 || res.Header.Get("Retry-After") != "1" || !strings.Contains(string(body), "one of its bounds") || err != nil {
			t.Errorf("%d %v %s, %v", res.StatusCode, res.Header, body, err)
		}
		if got := f.wait(); got != "none Service Unavailable" {
			t.Errorf("%s", got)
		}
	}
	if _, told := reached.Load(proxy.Full); !told {
		t.Error("nobody learns of it")
	}
	f.mustHaveUsed(most, "bytes", here)
	close(app.leave)
	asked.Wait()
	for range most {
		f.wait()
	}
	f.mustBe(200, "GET", "/", "")
	if n := len(dialed); n > most {
		t.Errorf("%d connections to the application", n)
	}
}

// application serves app by HTTP/1.1 and HTTP/2, and returns its address.
func application(t *testing.T, app http.Handler) (host string) {
	t.Helper()
	server := httptest.NewUnstartedServer(app)
	server.Config.Protocols = new(http.Protocols)
	server.Config.Protocols.SetHTTP1(true)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// watched returns the URL of a listener that passes connections on to upstream, and reports each.
func watched(t *testing.T, upstream *url.URL, dialed chan<- struct{}) *url.URL {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			dialed <- struct{}{}
			go join(conn, upstream.Host)
		}
	}()
	return &url.URL{Scheme: upstream.Scheme, Host: listener.Addr().String()}
}

func join(conn net.Conn, to string) {
	defer conn.Close()
	other, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer other.Close()
	go func() {
		_, _ = io.Copy(other, conn)
		_ = other.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(conn, other)
}

// TestStreamsOfAConnection holds that a connection may have as many streams as RFC 9113 recommends at least. The first
// frame has the number.
func TestStreamsOfAConnection(t *testing.T) {
	f := newFront(t, "- {path: /, limits: []}", hello)
	const settings, maxConcurrentStreams = 4, 3
	_, answers := f.dial("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00")
	head := make([]byte, 9)
	if _, err := io.ReadFull(answers, head); err != nil || head[3] != settings {
		t.Fatalf("the first frame begins % x, %v", head, err)
	}
	values := make([]byte, int(head[1])<<8|int(head[2]))
	if _, err := io.ReadFull(answers, values); err != nil {
		t.Fatal(err)
	}
	got := uint32(0)
	for ; len(values) >= 6; values = values[6:] {
		if binary.BigEndian.Uint16(values) == maxConcurrentStreams {
			got = binary.BigEndian.Uint32(values[2:])
		}
	}
	if got != 100 {
		t.Errorf("%d streams", got)
	}
}
