package http1

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// TestLongAnswerIsNotKept holds that the memory of a long answer is not kept after it was sent, and that of a short one is.
func TestLongAnswerIsNotKept(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() { _, _ = io.Copy(io.Discard, near) }()
	c := (&Server{Server: new(http.Server)}).newConn(far, nil)
	for length, kept := range map[int]bool{100: true, maxKept + 1: false} {
		c.body.begin(0)
		c.response.begin()
		_, _ = c.response.Write(make([]byte, length))
		if !c.response.end() || (cap(c.response.held) > 0) != kept || (c.response.out.Cap() > 0) != kept {
			t.Errorf("of %d bytes, %d and %d are kept", length, cap(c.response.held), c.response.out.Cap())
		}
	}
}
