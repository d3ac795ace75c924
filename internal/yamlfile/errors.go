package yamlfile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one mistake in a file.
type Error struct {
	File string
	Position
	Path    string // of the member: "policies[0].limits[1].window"; empty: the file
	Message string // the mistake and a hint
}

// Error returns FILE:LINE: PATH: MESSAGE, without unknown parts.
func (e Error) Error() string {
	text := e.File + ": "
	if e.Line > 0 {
		text = fmt.Sprintf("%s:%d: ", e.File, e.Line)
	}
	if e.Path != "" {
		text += e.Path + ": "
	}
	return text + e.Message
}

// Errors are the mistakes of a file in the order of their lines.
type Errors []Error

// maxListed is the maximum of mistakes in an error message, which may become one log line.
const maxListed = 50

// Error returns one line for each mistake, for the first 50 of them.
func (e Errors) Error() string {
	lines := make([]string, 0, min(len(e), maxListed)+1)
	for i, mistake := range e {
		if i == maxListed {
			lines = append(lines, fmt.Sprintf("… and %d more", len(e)-maxListed))
			break
		}
		lines = append(lines, mistake.Error())
	}
	return strings.Join(lines, "\n")
}

// Add adds a mistake in n.
func (f *File) Add(n *Node, format string, args ...any) {
	f.AddAt(n.Position, n.Path, format, args...)
}

// AddAt adds a mistake in the node at path, which may be missing.
func (f *File) AddAt(at Position, path, format string, args ...any) {
	message := fmt.Sprintf(format, args...)
	f.mistakes = append(f.mistakes, Error{File: f.Name, Position: at, Path: path, Message: message})
	f.wrong[path] = true
}

// Err returns all mistakes added so far as Errors, nil when there are none.
func (f *File) Err() error {
	if len(f.mistakes) == 0 {
		return nil
	}
	sorted := slices.Clone(f.mistakes)
	slices.SortStableFunc(sorted, func(a, b Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return sorted
}
