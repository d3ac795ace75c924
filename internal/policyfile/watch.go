package policyfile

import "github.com/ratelimitd/ratelimitd/internal/filewatch"

// Watcher reads a file again whenever it changes. Make one with NewWatcher.
type Watcher = filewatch.Watcher[File]

// NewWatcher returns a Watcher of the file at path, which reads it as LoadFile does.
func NewWatcher(path string) *Watcher {
	return filewatch.New("policies", []string{path}, func(contents [][]byte) (File, error) {
		return ParseFile(path, contents[0])
	})
}
