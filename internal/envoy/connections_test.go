package envoy_test

import (
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/envoy"
)

// opening is the preface of HTTP/2, settings and a ping: a connection without a request.
const opening = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
	"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "pingping"

// reached counts connections that were turned away.
type reached struct{ connections, idle atomic.Int64 }

func (r *reached) count(bound connections.Bound) {
	switch bound {
	case connections.Full:
		r.connections.Add(1)
	case connections.Idle:
		r.idle.Add(1)
	}
}

// crowded is a service with room for so many connections.
func crowded(t *testing.T, most int, set settings) (*front, *reached) {
	t.Helper()
	turned := new(reached)
	set.listen.Connections, set.listen.Reached = most, turned.count
	return newFront(t, edge, set), turned
}

// dial opens a connection and sends text.
func (f *front) dial(text string) net.Conn {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.conn.Target())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, text); err != nil {
		f.t.Fatal(err)
	}
	return conn
}

// another returns a client with a new connection.
func (f *front) another() *grpc.ClientConn {
	f.t.Helper()
	conn, err := grpc.NewClient(f.conn.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// TestIdleConnectionsMakeRoom holds that connections without a request, and those that watch health, are closed for one
// with a request.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	const most = 20
	for name, hold := range map[string]func(f *front){
		"a ping": func(f *front) {
			if _, err := io.ReadFull(f.dial(opening), make([]byte, 9)); err != nil { // its own settings
				f.t.Error(err)
			}
		},
		"nothing": func(f *front) { f.dial("") },
		"a watch of health": func(f *front) {
			watch, err := healthpb.NewHealthClient(f.another()).Watch(context.Background(), &healthpb.HealthCheckRequest{})
			if err == nil {
				_, err = watch.Recv()
			}
			if err != nil {
				f.t.Error(err)
			}
		},
		"a request that is not whole": func(f *front) {
			stream, err := f.another().NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true},
				rls.RateLimitService_ShouldRateLimit_FullMethodName)
			if err != nil {
				f.t.Error(err)
				return
			}
			f.t.Cleanup(func() { _ = stream.CloseSend() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, turned := crowded(t, most, settings{})
			for range most {
				hold(f)
			}
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				f.wants(f.answered(rls.NewRateLimitServiceClient(f.another()).ShouldRateLimit(ctx, request(descriptor("none=x")))), "OK; OK 0")
				cancel()
			}
			if idle, refused := turned.idle.Load(), turned.connections.Load(); idle < 3 || refused != 0 {
				t.Errorf("%d idle connections were closed, %d new ones refused", idle, refused)
			}
		})
	}
}

// TestBusyConnectionsAreKept holds that a new connection is refused while every other one has a request in progress.
func TestBusyConnectionsAreKept(t *testing.T) {
	store, turned := newShaky(), new(reached)
	f := newFront(t, byStoreError, settings{store: store, timeout: 5 * time.Minute, listen: envoy.ListenerOptions{
		Connections: 1, Reached: turned.count,
	}})
	store.waits.Store(true)
	answered := make(chan *rls.RateLimitResponse, 1)
	go func() { answered <- f.send(request(descriptor("deny=x"))) }()
	eventually(t, "the store is asked", func() bool { return store.calls.Load() > 0 })
	if rest, err := io.ReadAll(f.dial("")); len(rest) > 0 || err != nil {
		t.Errorf("one too many is answered %q, %v", rest, err)
	}
	close(store.release)
	f.wants(<-answered, "OK; OK 1 of 2/MINUTE deny 45s")
	if idle, refused := turned.idle.Load(), turned.connections.Load(); idle != 0 || refused != 1 {
		t.Errorf("%d idle connections were closed, %d new ones refused", idle, refused)
	}
}

// TestConnectionsWithoutARequestEnd holds that connections without a request end, although they ping.
func TestConnectionsWithoutARequestEnd(t *testing.T) {
	ring := new(auth.Keyring)
	callers, err := auth.Parse("callers.yaml", []byte("callers: [{name: a, token_sha256: "+auth.Digest("a")+", scopes: [decide]}]"))
	if err != nil {
		t.Fatal(err)
	}
	ring.Set(callers)
	f, _ := crowded(t, 20, settings{options: envoy.Options{Keyring: ring}, listen: envoy.ListenerOptions{Idle: 100 * time.Millisecond}})
	_, err = f.client.ShouldRateLimit(t.Context(), request(descriptor("none=x")))
	wantCode(t, err, codes.Unauthenticated, "")
	if said, err := io.ReadAll(f.dial(opening)); err != nil || !strings.Contains(string(said), "max_idle") {
		t.Errorf("%q, %v; want a farewell and the connection's end", said, err)
	}
}
