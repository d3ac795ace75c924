// Package filewatch reads files again whenever they change, and reports their content.
//
// It does not know their contents, which a function of the caller parses. It reports mistakes and puts nothing in
// force.
package filewatch

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// lookEvery is the interval at which files are read. A change is reported when two reads in a row find the same.
const lookEvery = time.Second

// Watcher reads files again whenever one of them changes. Make one with New.
type Watcher[T any] struct {
	what    string
	paths   []string
	parse   func(contents [][]byte) (T, error)
	last    [][]byte // the contents that were read last; nil: none yet
	failure string   // error of the last read; empty: it succeeded
	looked  look     // the last read
	reload  chan struct{}
}

// look is the contents of files, or the error of reading them.
type look struct {
	contents [][]byte
	err      error
}

// equal reports whether l and other are the same.
func (l *look) equal(other *look) bool {
	if l.err != nil || other.err != nil {
		return l.err != nil && other.err != nil && l.err.Error() == other.err.Error()
	}
	return slices.EqualFunc(l.contents, other.contents, bytes.Equal)
}

// New returns a Watcher of the files at paths, whose name in errors is what, such as "policies". parse parses their
// contents, in the order of paths; a file longer than yamlfile.MaxSize is cut to one byte more than that. The Watcher
// does nothing before Load or Run.
func New[T any](what string, paths []string, parse func(contents [][]byte) (T, error)) *Watcher[T] {
	w := &Watcher[T]{what: what, parse: parse, reload: make(chan struct{}, 1)}
	for _, path := range paths {
		w.paths = append(w.paths, filepath.Clean(path))
	}
	return w
}

// Load reads the files, and remembers them as those in force. It must not be called
// while Run runs.
func (w *Watcher[T]) Load() (T, error) {
	contents, err := w.contents()
	if err != nil {
		var none T
		return none, err
	}
	w.last = contents
	return w.parse(contents)
}

// Reload makes Run read the files, changed or not. It returns at once, and is safe for
// concurrent use.
func (w *Watcher[T]) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is pending already and will read the current files
	}
}

// Run calls changed with the parsed files, or with the error of their mistakes, after each Reload
// and each change of their contents, until ctx ends. A change between Load and Run counts. It
// returns nil.
//
// It reads the files once a second, and reports a change that two reads in a row have found, so that it does not report
// a file that is half written. A change is reported within seconds.
func (w *Watcher[T]) Run(ctx context.Context, changed func(T, error)) error {
	w.looked = w.look()
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.reload:
			w.tell(changed, w.look(), true)
		case <-looks.C:
			if found, before := w.look(), w.looked; found.equal(&before) {
				w.tell(changed, found, false)
			} else {
				w.looked = found
			}
		}
	}
}

// tell calls changed if found differs from the last contents, or if always is set.
func (w *Watcher[T]) tell(changed func(T, error), found look, always bool) {
	w.looked = found
	if err := found.err; err != nil {
		if always || err.Error() != w.failure {
			var none T
			changed(none, err)
		}
		w.failure = err.Error()
		return
	}
	w.failure = ""
	if !always && w.last != nil && slices.EqualFunc(found.contents, w.last, bytes.Equal) {
		return
	}
	w.last = found.contents
	changed(w.parse(found.contents))
}

func (w *Watcher[T]) look() look {
	contents, err := w.contents()
	return look{contents, err}
}

// contents reads all files.
func (w *Watcher[T]) contents() ([][]byte, error) {
	contents := make([][]byte, len(w.paths))
	for i, path := range w.paths {
		data, err := yamlfile.Read(path)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", w.what, err)
		}
		contents[i] = data
	}
	return contents, nil
}
