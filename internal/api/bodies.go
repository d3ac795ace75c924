package api

import (
	"errors"
	"io"
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Bounds of the memory of bodies and their answers, whoever sends and reads them, and however
// slowly.
const (
	// maxBodiesLen bounds all bodies that are being read, decided or answered, and what deciding
	// and answering them takes, without the first freeBodyLen and freeAnswerLen of each. The
	// largest batch takes 100 MiB, of 1000 calls with 16 demands under policies of 16 limits; one
	// of 64 takes under a limit each takes an eighth of one.
	maxBodiesLen = 512 << 20
	// freeBodyLen is how much of every body is read whatever the others take: calls of one
	// demand are shorter, and large bodies of others never keep them out. How many there
	// are is bounded by the connections.
	freeBodyLen = 4 << 10
	firstRead   = 512 // bytes: a call of one demand is shorter
)

// errBusy is a body that there is no memory for. Nothing of it was done.
var errBusy = &requestError{
	kind:   limiter.ErrOverloaded,
	detail: "Large requests and answers of others take all the memory that there is: send it again, perhaps in smaller parts.",
}

// bodies counts the bytes that bodies and answers take, past the free part of each.
type bodies struct {
	taken  atomic.Int64
	policy func(name string) (*limiter.Policy, bool) // that is in force
}

// take reports whether there was room for n more bytes, and takes them.
func (b *bodies) take(n int64) bool {
	if b.taken.Add(n) <= maxBodiesLen {
		return true
	}
	b.taken.Add(-n)
	return false
}

// readBody reads body into m, up to one byte more than most. The error is errBusy where
// there is no room for what has come.
func (m *scratch) readBody(body io.Reader, most int) error {
	room := freeBodyLen
	for m.in = m.in[:0]; ; {
		if len(m.in) == room {
			if room = min(2*room, most+1); !m.charge(room) {
				return errBusy
			}
		}
		if len(m.in) == cap(m.in) {
			m.in = append(make([]byte, 0, min(room, max(firstRead, 2*cap(m.in)))), m.in...)
		}
		n, err := body.Read(m.in[len(m.in):min(room, cap(m.in))])
		m.in = m.in[:len(m.in)+n]
		switch {
		case errors.Is(err, io.EOF) || err == nil && len(m.in) > most:
			return nil
		case err != nil:
			return err
		}
	}
}

// charge reports whether m may have a buffer of so many bytes, until it is released.
func (m *scratch) charge(size int) bool {
	more := int64(size) - freeBodyLen - m.charged
	if more <= 0 || m.bodies == nil {
		return true
	}
	if !m.bodies.take(more) {
		return false
	}
	m.charged += more
	return true
}

// discharge gives back what was charged.
func (m *scratch) discharge() {
	if m.charged > 0 {
		m.bodies.taken.Add(-m.charged)
		m.charged = 0
	}
}
