package policyfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// settleTime is how long a file must rest before it is read: long enough for an
// editor to write it whole, short enough for whoever waits for the reload.
const settleTime = 100 * time.Millisecond

// Watcher reads a file again whenever it changes. Make one with NewWatcher.
type Watcher struct {
	path    string
	last    []byte // what was read last; nil: nothing yet
	failure string // why nothing could be read last; empty: it could
	reload  chan struct{}
}

// NewWatcher returns a Watcher of the file at path. It does nothing before Load
// or Run.
func NewWatcher(path string) *Watcher {
	return &Watcher{path: filepath.Clean(path), reload: make(chan struct{}, 1)}
}

// Load reads the file as LoadFile does, and remembers it as what is in
// force. It must not be called while Run runs.
func (w *Watcher) Load() (File, error) {
	data, err := yamlfile.Read(w.path)
	if err != nil {
		return File{}, fmt.Errorf("reading policies: %w", err)
	}
	w.last = data
	return ParseFile(w.path, data)
}

// Reload makes Run read the file, changed or not. It returns at once, and is safe
// for concurrent use.
func (w *Watcher) Reload() {
	select {
	case w.reload <- struct{}{}:
	default: // one is pending already and will read what is there now
	}
}

// Run calls changed with what the file holds, or with what is wrong with the file, after
// each Reload and each change of what is in the file, until ctx ends. A change
// between Load and Run counts. It returns nil.
//
// It watches the folder, so that a file that is replaced by a rename, or through a
// symbolic link beside it as Kubernetes does, is seen. Where the folder cannot be
// watched, changed is told, and Reload works alone.
func (w *Watcher) Run(ctx context.Context, changed func(File, error)) error {
	folder, err := watchFolder(filepath.Dir(w.path))
	if err != nil {
		changed(File{}, fmt.Errorf("watching %s, which is now read only when asked to: %w", w.path, err))
	}
	defer folder.close()
	settled := time.NewTimer(0) // at once: the file may have changed since Load
	defer settled.Stop()
	pending := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.reload:
			w.read(changed, true)
		case event := <-folder.events:
			// Another file of the folder may be the link that ours leads through, but
			// must not keep ours from ever settling.
			if ours := filepath.Clean(event.Name) == w.path; ours || !pending {
				settled.Reset(settleTime)
				pending = true
			}
		case err := <-folder.failures:
			changed(File{}, fmt.Errorf("watching %s: %w", w.path, err))
			w.read(changed, false) // events may have been lost
		case <-settled.C:
			pending = false
			w.read(changed, false)
		}
	}
}

// read reads the file and calls changed if there is news, or if told always to.
func (w *Watcher) read(changed func(File, error), always bool) {
	data, err := yamlfile.Read(w.path)
	if err != nil {
		err = fmt.Errorf("reading policies: %w", err)
		if always || err.Error() != w.failure {
			changed(File{}, err)
		}
		w.failure = err.Error()
		return
	}
	w.failure = ""
	if !always && w.last != nil && bytes.Equal(data, w.last) {
		return
	}
	w.last = data
	changed(ParseFile(w.path, data))
}

// folder tells what happens to the files of a folder; the zero folder nothing.
type folder struct {
	events   <-chan fsnotify.Event
	failures <-chan error
	close    func()
}

// watchFolder returns the folder at path; on an error, the zero one.
func watchFolder(path string) (folder, error) {
	none := folder{close: func() {}}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return none, err
	}
	if err := w.Add(path); err != nil {
		return none, errors.Join(err, w.Close())
	}
	return folder{w.Events, w.Errors, func() { _ = w.Close() }}, nil // nothing is written
}
