package http1

import (
	"errors"
	"io"
	"sync/atomic"
	"time"
)

// body is that of a connection's present request.
type body struct {
	conn  *conn
	left  int64 // bytes that the handler has not read
	whole atomic.Bool
	timed bool // the ReadTimeout is running
}

func (b *body) begin(length int64) {
	b.left, b.timed = length, false
	b.whole.Store(length == 0)
}

// Read reads what came with the head first. The error is io.EOF at the body's end,
// io.ErrUnexpectedEOF if the connection's comes before.
func (b *body) Read(p []byte) (n int, err error) {
	switch {
	case b.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}
	p = p[:min(int64(len(p)), b.left)]
	if c := b.conn; len(c.unread) > 0 {
		n = copy(p, c.unread)
		c.unread = c.unread[n:]
	} else {
		n, err = b.receive(p)
	}
	if b.left -= int64(n); b.left == 0 {
		b.whole.Store(true)
		return n, io.EOF
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// receive reads from the connection.
func (b *body) receive(p []byte) (int, error) {
	if !b.timed {
		b.timed = true
		by := time.Time{}
		if timeout := b.conn.server.ReadTimeout; timeout > 0 {
			by = time.Now().Add(timeout)
		}
		b.conn.setReadBy(by)
	}
	return b.conn.rwc.Read(p)
}

// Close does nothing.
func (b *body) Close() error { return nil }
