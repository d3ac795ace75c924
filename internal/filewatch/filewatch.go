// Package filewatch reads files again whenever they change, and tells what they say.
//
// It does not know what is in them: whoever makes a Watcher brings the function that reads
// a T out of them. What is wrong with a file is told, and nothing is put in force here.
package filewatch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// settleTime is how long files must rest before they are read: long enough for an
// editor to write one whole, short enough for whoever waits for the reload.
const settleTime = 100 * time.Millisecond

// lookEvery is how often files are looked at though nothing was told of them: of a file that
// is mounted by itself, of one behind a link into another folder, and of a folder that was
// made anew, nothing is.
const lookEvery = 2 * time.Second

// Watcher reads files again whenever one of them changes. Make one with New.
type Watcher[T any] struct {
	what    string
	paths   []string
	parse   func(contents [][]byte) (T, error)
	last    [][]byte // what was read last; nil: nothing yet
	failure string   // why nothing could be read last; empty: it could
	looked  look     // what was there when it was looked at
	reload  chan struct{}
}

// look is what is in files, or why they can't be read.
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

// New returns a Watcher of the files at paths, which errors call what, such as "policies".
// parse makes a T of what is in them, in the order of paths; of a file longer than
// yamlfile.MaxSize it is given one byte more than that. The Watcher does nothing before
// Load or Run.
func New[T any](what string, paths []string, parse func(contents [][]byte) (T, error)) *Watcher[T] {
	w := &Watcher[T]{what: what, parse: parse, reload: make(chan struct{}, 1)}
	for _, path := range paths {
		w.paths = append(w.paths, filepath.Clean(path))
	}
	return w
}

// Load reads the files, and remembers them as what is in force. It must not be called
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
	default: // one is pending already and will read what is there now
	}
}

// Run calls changed with what the files say, or with what is wrong with them, after each
// Reload and each change of what is in them, until ctx ends. A change between Load and Run
// counts. It returns nil.
//
// It watches the folders, so that a file that is replaced by a rename, or through a
// symbolic link beside it as Kubernetes does, is seen at once. What is not told of there is
// seen within seconds: twice the same, so that nobody is in the middle of writing it. Where a
// folder cannot be watched, changed is told.
func (w *Watcher[T]) Run(ctx context.Context, changed func(T, error)) error {
	told := func(err error) {
		var none T
		changed(none, err)
	}
	folders, err := watchFolders(w.paths)
	if err != nil {
		told(fmt.Errorf("watching %s, looked at every %v now: %w", strings.Join(w.paths, ", "), lookEvery, err))
	}
	defer folders.close()
	settled := time.NewTimer(0) // at once: a file may have changed since Load
	defer settled.Stop()
	pending := true
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.reload:
			w.read(changed, true)
		case event := <-folders.events:
			// Another file of a folder may be the link that ours leads through, but
			// must not keep ours from ever settling.
			if ours := slices.Contains(w.paths, filepath.Clean(event.Name)); ours || !pending {
				settled.Reset(settleTime)
				pending = true
			}
		case err := <-folders.failures:
			told(fmt.Errorf("watching %s: %w", strings.Join(w.paths, ", "), err))
			w.read(changed, false) // events may have been lost
		case <-settled.C:
			pending = false
			w.read(changed, false)
		case <-looks.C:
			if found, before := w.look(), w.looked; !pending && found.equal(&before) {
				w.tell(changed, found, false)
			} else {
				w.looked = found
			}
		}
	}
}

// read reads the files and calls changed if there is news, or if told always to.
func (w *Watcher[T]) read(changed func(T, error), always bool) { w.tell(changed, w.look(), always) }

// tell calls changed if found is news, or if told always to.
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

// folders tell what happens to the files in them; the zero folders nothing.
type folders struct {
	events   <-chan fsnotify.Event
	failures <-chan error
	close    func()
}

// watchFolders returns the folders that paths are in; on an error, the zero ones.
func watchFolders(paths []string) (folders, error) {
	none := folders{close: func() {}}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return none, err
	}
	for _, path := range paths {
		if err := w.Add(filepath.Dir(path)); err != nil {
			return none, errors.Join(err, w.Close())
		}
	}
	return folders{w.Events, w.Errors, func() { _ = w.Close() }}, nil // nothing is written
}
