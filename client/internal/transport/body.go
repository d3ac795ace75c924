package transport

import (
	"bytes"
	"errors"
	"io"
)

// Bounds of bodies, in bytes.
const (
	// maxBodyLen exceeds the answer to a batch of 1000 calls of 16 demands.
	maxBodyLen = 64 << 20
	// maxLineLen exceeds the answer to a call of 16 demands. Up to twice as much may be read.
	maxLineLen = 1 << 20
	firstRead  = 4 << 10
)

var errTooLong = errors.New("longer than any of ratelimitd's")

// readBody reads body, whose stated length is length, or -1 if none is stated.
func (r *Reply) readBody(body io.Reader, length int64) error {
	if length > maxBodyLen {
		return errTooLong
	}
	b := r.Body[:0]
	if want := int(max(length+1, firstRead)); cap(b) < want {
		b = make([]byte, 0, want)
	}
	defer func() { r.Body = b }()
	for {
		if len(b) > maxBodyLen {
			return errTooLong
		}
		if len(b) == cap(b) {
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// LineReader reads the answer to a batch in which each result is a line, sent as soon as it is decided.
type LineReader interface {
	// ReadLine reads a line, without its end. line is valid only until ReadLine returns. An error ends the reading.
	ReadLine(line []byte) error
	// Pause is called after all lines that have arrived, at least one, were read.
	Pause()
	// Complete reports whether all lines were read.
	Complete() bool
}

// readLines passes the lines of body to lines, until it ends. It uses the memory of r.
func (r *Reply) readLines(body io.Reader, lines LineReader) error {
	b := r.Body[:0]
	if cap(b) < firstRead {
		b = make([]byte, 0, firstRead)
	}
	defer func() { r.Body = b }()
	for {
		if len(b) == cap(b) {
			if len(b) > maxLineLen {
				return errTooLong
			}
			b = append(make([]byte, 0, 2*cap(b)), b...)
		}
		n, err := body.Read(b[len(b):cap(b)])
		read, wrong := readWholeLines(b[:len(b)+n], lines)
		b = b[:copy(b[:cap(b)], b[read:len(b)+n])]
		if read > 0 {
			lines.Pause()
		}
		switch {
		case wrong != nil:
			return wrong
		case err != nil && lines.Complete(): // an error after the last line does not matter
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
}

// readWholeLines passes the complete lines of b to lines, and returns their length.
func readWholeLines(b []byte, lines LineReader) (length int, err error) {
	for {
		end := bytes.IndexByte(b[length:], '\n')
		if end < 0 {
			return length, nil
		}
		if err := lines.ReadLine(b[length : length+end]); err != nil {
			return length, err
		}
		length += end + 1
	}
}
