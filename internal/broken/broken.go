// Package broken has builds of the service that are broken on purpose, and the tests that catch them: a check that
// cannot fail proves nothing. A build replaces a few lines of the service's files with the compiler's overlay, so that
// the tree is not changed. The package knows only the text of those lines.
package broken

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Build is the service without a condition of a promise.
type Build struct {
	Name  string // unique name
	Broke string // the promise that no longer holds
	Rule  int    // the rule of owners that it breaks, 1 to Rules; 0: none
	Edits []Edit
	Tests []string // must all fail: tests of internal/limiter or, as "embedded.TestX/Y", of another package in internal
	Finds int      // the simulation must find it within this many schedules, from the first one; 0: it need not
	Vital bool     // it is one of the few that every run of CI tries
}

// Rules is how many rules of owners there are: docs/contributing/broken-builds.md has them.
const Rules = 9

// RuleName returns the rule that b breaks, for tables.
func (b *Build) RuleName() string {
	if b.Rule == 0 {
		return "–"
	}
	return strconv.Itoa(b.Rule)
}

// Edit is a change of one file.
type Edit struct {
	File string // below the module's root
	Old  string // occurs exactly once in the file
	New  string
}

// Apply returns the new content of the files that b changes, by path below root. The
// error names the edit that no longer applies.
func (b *Build) Apply(root string) (map[string][]byte, error) {
	files := make(map[string][]byte)
	for _, e := range b.Edits {
		text, ok := files[e.File]
		if !ok {
			var err error
			if text, err = os.ReadFile(filepath.Join(root, e.File)); err != nil {
				return nil, fmt.Errorf("%s: %w", b.Name, err)
			}
		}
		if n := bytes.Count(text, []byte(e.Old)); n != 1 {
			return nil, fmt.Errorf("%s: %s has this %d times, not once:\n%s", b.Name, e.File, n, e.Old)
		}
		files[e.File] = bytes.Replace(text, []byte(e.Old), []byte(e.New), 1)
	}
	return files, nil
}

// Overlay puts the files that b changes into folder, and returns the path of a file that
// tells the compiler (-overlay) to read those in place of root's.
func (b *Build) Overlay(root, folder string) (string, error) {
	files, err := b.Apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for name, text := range files {
		path := filepath.Join(folder, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, name)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "overlay.json")
	return path, os.WriteFile(path, overlay, 0o600)
}
