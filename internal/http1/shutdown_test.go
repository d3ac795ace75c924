package http1_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/http1"
)

// TestShutdown holds that connections that wait are closed, and others have their answer first.
func TestShutdown(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		release, began := make(chan struct{}), make(chan struct{})
		f := newFront(t, by, func(w http.ResponseWriter, r *http.Request) {
			if r.ContentLength > 0 {
				close(began)
				<-release
			}
			_, _ = io.WriteString(w, "answer")
		})
		idle, fresh, busy := f.dial(), f.dial(), f.dial()
		idle.say(post(""))
		idle.wantAnswer("answer")
		go busy.say(post("slow"))
		<-began
		synctest.Wait()
		ended := make(chan error)
		go func() { ended <- f.server.Shutdown(t.Context()) }()
		idle.wantEnd()
		fresh.wantEnd()
		time.Sleep(time.Minute)
		select {
		case err := <-ended:
			t.Errorf("Shutdown returned %v before the last answer", err)
		default:
		}
		close(release)
		if res, body := busy.hear(); !res.Close || body != "answer" {
			t.Errorf("%v %q, want a last answer", res.Close, body)
		}
		busy.wantEnd()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestShutdownInTime holds that Shutdown returns when its time is over, and that Close ends the remaining connections.
func TestShutdownInTime(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		ended := make(chan struct{})
		f := newFront(t, by, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(ended)
		})
		c := f.dial()
		go c.say(post(""))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.server.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: %v", err)
		}
		_ = f.server.Close()
		<-ended
	})
}

// lagging is a listener that accepts one more connection after it was closed.
type lagging struct {
	*pipes
	late chan net.Conn
}

// Accept returns the late connection before it fails.
func (l lagging) Accept() (net.Conn, error) {
	conn, err := l.pipes.Accept()
	if late, ok := <-l.late; err != nil && ok {
		return late, nil
	}
	return conn, err
}

// TestNobodyComesAfterShutdown holds that a connection is closed if the listener accepts it after Shutdown.
func TestNobodyComesAfterShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lagging{newPipes(), make(chan net.Conn)}
		s := &http1.Server{Server: newServer(echo)}
		served, ended := make(chan error), make(chan error)
		go func() { served <- s.Serve(l) }()
		synctest.Wait()
		go func() { ended <- s.Shutdown(t.Context()) }()
		synctest.Wait()
		near, far := net.Pipe()
		l.late <- far
		close(l.late)
		(&client{Conn: near, t: t, from: bufio.NewReader(near)}).wantEnd()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// TestAbort holds that http.ErrAbortHandler ends a connection without an answer or a log line.
func TestAbort(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
		c := f.dial()
		c.say(post(""))
		c.wantEnd()
		synctest.Wait()
		if logged := f.logged.String(); logged != "" {
			t.Errorf("logged %q", logged)
		}
	})
}

// TestPanic holds that a panic closes the connection and is logged, without the client's address.
func TestPanic(t *testing.T) {
	byBoth(t, func(t *testing.T, by func(*http.Server) server) {
		f := newFront(t, by, func(http.ResponseWriter, *http.Request) { panic(errors.New("at the disco")) })
		c := f.dial()
		c.say(post(""))
		c.wantEnd()
		synctest.Wait()
		if logged := f.logged.String(); !strings.Contains(logged, "at the disco") || !strings.Contains(logged, "shutdown_test.go") {
			t.Errorf("logged %q", logged)
		}
	})
}
