package http1

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// body is the body of a connection's current request.
type body struct {
	conn  *conn
	left  int64       // bytes that the handler has not read
	whole atomic.Bool // all was read
	timed bool        // the ReadTimeout has begun
}

func (b *body) begin(length int64) {
	b.left, b.timed = length, false
	b.whole.Store(length == 0)
}

// Read returns io.EOF at the end of the body, or io.ErrUnexpectedEOF if the connection ends before.
func (b *body) Read(p []byte) (n int, err error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	b.beginTimeout()
	n, err = b.conn.in.Read(p[:min(int64(len(p)), b.left)])
	if b.left -= int64(n); b.left == 0 {
		b.whole.Store(true)
		return n, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// beginTimeout begins the ReadTimeout before the first read that waits.
func (b *body) beginTimeout() {
	if b.timed || b.conn.in.Buffered() > 0 {
		return
	}
	b.timed = true
	by := time.Time{}
	if timeout := b.conn.server.ReadTimeout; timeout > 0 {
		by = time.Now().Add(timeout)
	}
	b.conn.setReadBy(by)
}

// Close does nothing.
func (b *body) Close() error { return nil }
