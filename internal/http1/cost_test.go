//go:build unix

package http1_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/api"
	"github.com/ratelimitd/ratelimitd/internal/connections"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// BenchmarkTake measures the processor time of a process for POST /v1/take over the embedded store, by each of the two
// servers, on 64 keep-alive connections over loopback, each with its own caller. The clients are in another process, whose
// time does not count:
//
//	go test ./internal/http1 -run '^$' -bench '^BenchmarkTake$' -benchtime 50000x -count 5
func BenchmarkTake(b *testing.B) {
	for _, name := range []string{"fast", "std"} {
		b.Run(name, func(b *testing.B) {
			p := startServer(b, name)
			before := p.processorTime()
			p.take(b.N)
			b.ReportMetric(float64(p.processorTime()-before)/float64(b.N)/float64(time.Microsecond), "cpu-µs/op")
		})
	}
}

// servedBy is the environment variable by which this test's binary serves instead of testing.
const servedBy = "RATELIMITD_BENCHMARK_SERVED_BY"

// TestMain serves in the process that startServer starts.
func TestMain(m *testing.M) {
	if name := os.Getenv(servedBy); name != "" {
		if err := serve(name, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// serve serves takes until in ends. It writes its address to out, and then, for each line that it reads, its processor
// time.
func serve(name string, in io.Reader, out io.Writer) error {
	engine := limiter.New(embedded.New(nil), nil)
	if err := engine.SetPolicies([]policy.Policy{{Name: "api", Limits: []policy.Limit{
		{Algorithm: "sliding-tail", Limit: policy.MaxLimit, Window: time.Minute},
	}}}); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	web := api.NewHTTPServer(api.New(engine, nil))
	limited := connections.Limit(web, listener, connections.DefaultMost, func(connections.Bound) {})
	by := fast(web)
	if name == "std" {
		by = web
	}
	served := make(chan error, 1)
	go func() { served <- by.Serve(limited) }()
	_, _ = fmt.Fprintln(out, listener.Addr())
	for asked := bufio.NewScanner(in); asked.Scan(); {
		var used syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, used.Utime.Nano()+used.Stime.Nano())
	}
	_ = by.Close()
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// process is a process that serves.
type process struct {
	b       *testing.B
	address string
	in      io.Writer
	out     *bufio.Scanner
}

// startServer starts a process that serves by the server of this name until the benchmark ends.
func startServer(b *testing.B, name string) *process {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), servedBy+"="+name), os.Stderr
	in, inErr := cmd.StdinPipe()
	out, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := errors.Join(in.Close(), cmd.Wait()); err != nil {
			b.Error(err)
		}
	})
	p := &process{b: b, in: in, out: bufio.NewScanner(out)}
	p.address = p.line()
	return p
}

// line returns the next line that the process writes.
func (p *process) line() string {
	p.b.Helper()
	if !p.out.Scan() {
		p.b.Fatalf("the server says nothing: %v", p.out.Err())
	}
	return p.out.Text()
}

// processorTime returns the processor time of this process.
func (p *process) processorTime() time.Duration {
	p.b.Helper()
	_, _ = fmt.Fprintln(p.in)
	taken, err := strconv.ParseInt(p.line(), 10, 64)
	if err != nil {
		p.b.Fatal(err)
	}
	return time.Duration(taken)
}

// take sends n takes on 64 connections.
func (p *process) take(n int) {
	const connections = 64
	var all sync.WaitGroup
	for i := range connections {
		all.Go(func() {
			if err := p.takeBy(i, n/connections+1); err != nil {
				p.b.Error(err)
			}
		})
	}
	all.Wait()
}

// takeBy sends n takes of one caller on one connection, one after the other, with the head of Go's client. Each answer is
// written at once, and so read at once.
func (p *process) takeBy(caller, n int) error {
	conn, err := net.Dial("tcp", p.address)
	if err != nil {
		return err
	}
	defer conn.Close()
	body := fmt.Sprintf(`{"policy":"api","identifier":"caller %d"}`, caller)
	request := []byte("POST /v1/take HTTP/1.1\r\nHost: " + p.address + "\r\nUser-Agent: Go-http-client/1.1\r\n" +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n" + body)
	answer := make([]byte, 4<<10)
	for range n {
		_, writeErr := conn.Write(request)
		read, readErr := conn.Read(answer)
		if err := errors.Join(writeErr, readErr); err != nil {
			return err
		}
		if !bytes.HasPrefix(answer[:read], []byte("HTTP/1.1 200 ")) {
			return fmt.Errorf("answered %q", answer[:read])
		}
	}
	return nil
}
