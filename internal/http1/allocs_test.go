package http1_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// TestPlainRequestsHardlyAllocate holds that a request and its answer only allocate the *http.Request and its context.
func TestPlainRequestsHardlyAllocate(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates, too")
	}
	answer := []byte("answer")
	f := newFront(t, fast, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		h := w.Header()
		h["Content-Type"] = kind
		_, _ = w.Write(answer)
	})
	c := f.dial()
	request, read := []byte(post("hello")), make([]byte, 1024)
	n := testing.AllocsPerRun(1000, func() {
		if _, err := c.Write(request); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(read); err != nil {
			t.Fatal(err)
		}
	})
	if n > 2 {
		t.Errorf("%v allocations, want 2", n)
	}
}

var kind = []string{"text/plain"}

// BenchmarkPlainRequest measures a request and its answer in memory, without system calls.
func BenchmarkPlainRequest(b *testing.B) {
	f := newFront(b, fast, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header()["Content-Type"] = kind
		_, _ = w.Write([]byte("answer"))
	})
	c := f.dial()
	request, read := []byte(postWith("User-Agent: a\r\nAccept: */*\r\nContent-Type: application/json\r\n", "hello")), make([]byte, 1024)
	b.ReportAllocs()
	for b.Loop() {
		_, _ = c.Write(request)
		_, _ = c.Read(read)
	}
}
