package client

import (
	"bytes"
	"errors"
	"io"
)

// lines takes the answer to a batch in which each result is a line, and comes as soon as it is
// decided.
type lines struct {
	calls    []*asked
	answered func(a *asked, left int) // is given each that has its answer, and how many have none
	came     func(left int)           // is told when some results have come, and how many have to be waited for
	left     int                      // how many results are to come
}

// maxLineLen is more than a call of 16 demands comes to, in bytes. Up to twice as much may be read.
const maxLineLen = 1 << 20

// readFrom reads body until it ends, through the memory of back. Its error is a foreignError, or
// that of body.
func (l *lines) readFrom(back *reply, body io.Reader) error {
	b := back.body[:0]
	if cap(b) < firstRead {
		b = make([]byte, 0, firstRead)
	}
	defer func() { back.body = b }()
	l.left = len(l.calls)
	for {
		if len(b) == cap(b) {
			if len(b) > maxLineLen {
				return back.foreign(errTooLong.Error())
			}
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := body.Read(b[len(b):cap(b)])
		came, nonsense := l.take(back, b[:len(b)+n])
		b = b[:copy(b[:cap(b)], b[came:len(b)+n])]
		if came > 0 {
			l.came(l.left)
		}
		switch {
		case nonsense != nil:
			return nonsense
		case err != nil && l.left == 0: // however it ended
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// take reads the lines that b begins with, and returns how long they are.
func (l *lines) take(back *reply, b []byte) (length int, err error) {
	for {
		end := bytes.IndexByte(b[length:], '\n')
		if end < 0 {
			return length, nil
		}
		if err := l.read(back, b[length:length+end]); err != nil {
			return length, err
		}
		length += end + 1
	}
}

// read reads a line.
func (l *lines) read(back *reply, line []byte) error {
	var a answer
	s := scanner{b: line, names: back.names}
	if err := s.readLine(&a); err != nil {
		return back.foreign(err.Error())
	}
	if a.index < 0 || a.index >= len(l.calls) || l.calls[a.index] == nil {
		return back.foreign(errNonsense.Error())
	}
	call := l.calls[a.index]
	l.calls[a.index] = nil // it may be its caller's again
	l.left--
	a.problem.inBatch()
	call.answer = a
	l.answered(call, l.left)
	return nil
}
