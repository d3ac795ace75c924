package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Stdin is the file name of standard input.
const Stdin = "-"

// MaxLine is the maximum length of a line, in bytes.
const MaxLine = 256 << 10

// file is a log that is read line by line.
type file struct {
	name    string
	opts    *Options
	closers []io.Closer
	in      *bufio.Reader
	parser  parser
	line    int     // how many were read
	text    []byte  // of the last one
	record  *Record // of the last one

	undecided int   // lines before there was a parser
	unknown   error // of the first of them
}

// counted counts the bytes that are read from a file, before it is unpacked.
type counted struct {
	io.Reader
	bytes *int64
}

func (c *counted) Read(p []byte) (n int, err error) {
	n, err = c.Reader.Read(p)
	*c.bytes += int64(n)
	return n, err
}

// open opens the log name, which may be compressed by gzip or zstd, and adds the bytes that it reads to read.
func open(name string, opts *Options, stdin io.Reader, read *int64) (*file, error) {
	f := &file{name: name, opts: opts}
	if name == Stdin {
		f.name = "standard input"
	} else {
		opened, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		f.closers, stdin = append(f.closers, opened), opened
	}
	raw := bufio.NewReaderSize(&counted{stdin, read}, MaxLine)
	plain, err := f.unpack(raw)
	if err == nil {
		f.in, err = decoded(plain)
	}
	if err != nil {
		f.close()
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	f.record = newRecord(len(opts.Fields))
	return f, nil
}

// The first bytes of compressed files.
var magicGzip, magicZstd = []byte{0x1f, 0x8b}, []byte{0x28, 0xb5, 0x2f, 0xfd}

func (f *file) unpack(raw *bufio.Reader) (*bufio.Reader, error) {
	start, err := raw.Peek(len(magicZstd))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(start, magicGzip):
		unpacked, err := gzip.NewReader(raw)
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, unpacked)
		return bufio.NewReaderSize(unpacked, MaxLine), nil
	case bytes.HasPrefix(start, magicZstd):
		unpacked, err := zstd.NewReader(raw, zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, err
		}
		f.closers = append(f.closers, unpacked.IOReadCloser())
		return bufio.NewReaderSize(unpacked, MaxLine), nil
	}
	return raw, nil
}

// byteOrderMark may precede UTF-8.
var byteOrderMark = []byte("\xef\xbb\xbf")

// decoded returns a reader of in as UTF-8. It detects UTF-16 by its byte order mark or a zero byte in its first
// character.
func decoded(in *bufio.Reader) (*bufio.Reader, error) {
	start, err := in.Peek(2)
	if errors.Is(err, io.EOF) {
		return in, nil
	}
	if err != nil {
		return nil, err
	}
	order := unicode.LittleEndian
	switch {
	case start[0] == 0xfe && start[1] == 0xff, start[0] == 0 && start[1] != 0:
		order = unicode.BigEndian
	case start[0] == 0xff && start[1] == 0xfe, start[0] != 0 && start[1] == 0:
	default:
		return in, nil
	}
	return bufio.NewReaderSize(transform.NewReader(in, unicode.UTF16(order, unicode.UseBOM).NewDecoder()), MaxLine), nil
}

func (f *file) close() {
	for _, c := range f.closers {
		_ = c.Close() // nothing was written
	}
}

// next reads the next readable line into f.record, and calls unreadable for those before. It returns io.EOF at the end.
// After other errors, the file can't be read any more.
func (f *file) next(unreadable func(Unreadable)) error {
	for {
		switch err := f.readLine(); {
		case errors.Is(err, errLong):
			unreadable(f.unreadable(err))
			continue
		case errors.Is(err, io.EOF):
			if f.parser == nil && f.unknown != nil && !f.named() {
				return f.unknown
			}
			return err
		case err != nil:
			return fmt.Errorf("%s, after line %d: %w", f.name, f.line, err)
		}
		if len(f.text) == 0 {
			continue
		}
		if f.parser == nil {
			header, err := f.decide(unreadable)
			if err != nil {
				return err
			}
			if header || f.parser == nil {
				continue
			}
		}
		f.record.reset()
		if err := f.parse(); err != nil {
			unreadable(f.unreadable(err))
			continue
		}
		return nil
	}
}

var errReturn = errors.New("it has a carriage return within: lines end with a line feed, or with both")

var errNoTime = errors.New("it has no time: the field is empty, or a dash")

func (f *file) parse() error {
	if bytes.IndexByte(f.text, '\r') >= 0 {
		return errReturn
	}
	if err := f.parser.parse(f.text, f.record); err != nil {
		return err
	}
	if f.record.ranks[slotTime+1] == unset {
		return errNoTime
	}
	return nil
}

// maxUndecided is the maximum of lines in no known format before the first readable one, such as messages of a server's
// start, unless the format is named.
const maxUndecided = 100

// decide sets the parser of f by the current line, and reports whether that is a header. A line that does not tell the
// format is unreadable.
func (f *file) decide(unreadable func(Unreadable)) (header bool, err error) {
	made, header, err := newParser(f.text, f.undecided == 0, f.opts)
	var not *undecided
	if !errors.As(err, &not) {
		if err != nil {
			return false, fmt.Errorf("%s, line %d: %w", f.name, f.line, err)
		}
		f.parser = made
		return header, nil
	}
	if f.undecided++; f.unknown == nil {
		f.unknown = fmt.Errorf("%s, line %d: %w", f.name, f.line, err)
	}
	if f.undecided == maxUndecided && !f.named() {
		return false, f.unknown
	}
	unreadable(f.unreadable(err))
	return false, nil
}

func (f *file) named() bool { return f.opts.Format != "" && f.opts.Format != FormatAuto }

func (f *file) unreadable(why error) Unreadable {
	return Unreadable{
		File: f.name, Line: f.line, Why: why.Error(), Text: string(f.text[:min(len(f.text), maxShown)]),
		noAddress: errors.Is(why, errNoAddress) || errors.Is(why, errSeveral),
	}
}

var errLong = fmt.Errorf("it is longer than %d bytes", MaxLine)

// readLine reads a line into f.text, without its end.
func (f *file) readLine() error {
	text, err := f.in.ReadSlice('\n')
	f.text = bytes.TrimPrefix(bytes.TrimRight(text, "\r\n"), byteOrderMark) // logs may be concatenated
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		f.line++
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = f.in.ReadSlice('\n')
		}
		f.text = nil
		return errLong
	case err != nil && (!errors.Is(err, io.EOF) || len(text) == 0):
		return err
	}
	f.line++
	return nil
}
