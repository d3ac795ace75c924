package accesslog

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// MaxFiles is the maximum of logs that are read together. Each is open, with two buffers of MaxLine.
const MaxFiles = 256

// Reader reads several logs as one, in the order of time. Make one with Open.
type Reader struct {
	// Lines counts the readable lines, Unreadable the others, and Late those that were too far out of order to be sorted,
	// which get the time of the latest line before them.
	Lines, Unreadable, Late int64
	// NoAddress counts unreadable lines whose client is not known.
	NoAddress int64
	// Listed counts lines whose FieldIP is the first of several addresses, and Forwarded those with X-Forwarded-For
	// besides FieldIP.
	Listed, Forwarded int64
	// Examples are the first unreadable lines.
	Examples []Unreadable
	// SizeBytes is the size of all logs, except standard input, and BytesRead the number of bytes read from them and from
	// standard input, before they are unpacked.
	SizeBytes, BytesRead int64

	files []*file // logs that have not ended, each with its next line
	queue queue
	last  store.Instant // of the record returned
	close []*file
}

// maxExamples is the maximum of Examples.
const maxExamples = 5

// Open opens the logs names; Stdin stands for stdin. Lines that are at most reorder out of order are sorted. The error
// names the log that can't be read.
func Open(names []string, opts *Options, reorder time.Duration, stdin io.Reader) (*Reader, error) {
	if len(names) > MaxFiles {
		return nil, fmt.Errorf("%d logs: at most %d can be read together", len(names), MaxFiles)
	}
	r := &Reader{queue: queue{within: reorder}}
	for _, name := range names {
		f, err := open(name, opts, stdin, &r.BytesRead)
		if err != nil {
			r.Close()
			return nil, fmt.Errorf("reading logs: %w", err)
		}
		r.close = append(r.close, f)
		if info, err := os.Stat(name); err == nil {
			r.SizeBytes += info.Size()
		}
	}
	for _, f := range r.close {
		if err := r.advance(f); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// Close closes all logs.
func (r *Reader) Close() {
	for _, f := range r.close {
		f.close()
	}
}

// advance reads the next line of f, and moves f to its place in r.files, or removes it at its end.
func (r *Reader) advance(f *file) error {
	if i := slices.Index(r.files, f); i >= 0 {
		r.files = slices.Delete(r.files, i, i+1)
	}
	switch err := f.next(r.unreadable); {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return fmt.Errorf("reading logs: %w", err)
	}
	at, _ := slices.BinarySearchFunc(r.files, f, func(a, b *file) int { return cmp.Compare(a.record.At, b.record.At) })
	r.files = slices.Insert(r.files, at, f)
	return nil
}

func (r *Reader) unreadable(u Unreadable) {
	r.Unreadable++
	if u.noAddress {
		r.NoAddress++
	}
	if len(r.Examples) < maxExamples {
		r.Examples = append(r.Examples, u)
	}
}

// Next returns the next line in the order of time, or io.EOF. Its time is never before that of the last one.
func (r *Reader) Next() (*Record, error) {
	for len(r.files) > 0 && !r.queue.ripe() {
		f := r.files[0]
		r.queue.push(f.record)
		r.Lines++
		if f.record.listed {
			r.Listed++
		}
		if f.record.forwarded {
			r.Forwarded++
		}
		if err := r.advance(f); err != nil {
			return nil, err
		}
	}
	next := r.queue.pop()
	if next == nil {
		return nil, io.EOF
	}
	if next.At < r.last {
		r.Late++
		next.At = r.last
	}
	r.last = next.At
	return next, nil
}
