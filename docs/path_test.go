package docs_test

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// linesToRead is the most lines of the pages and files that design.md asks a newcomer to read.
const linesToRead = 4_500

// TestReadingPathIsShort counts the lines of the pages and files that "Read it in an hour" names. A file that has moved
// fails it.
func TestReadingPathIsShort(t *testing.T) {
	_, path, found := strings.Cut(read(t, "design.md"), "## Read it in an hour\n")
	path, _, _ = strings.Cut(path, "\n## ")
	named := []string{"design.md"}
	for _, page := range regexp.MustCompile(`\]\((design/[a-z-]+\.md)\)`).FindAllStringSubmatch(path, -1) {
		named = append(named, page[1])
	}
	pages := len(named)
	for _, file := range regexp.MustCompile("`((?:[a-z]+/)?[a-z]+\\.go)`").FindAllStringSubmatch(path, -1) {
		named = append(named, filepath.Join("../internal/limiter", file[1]))
	}
	if !found || pages < 4 || len(named) < pages+10 {
		t.Fatalf("it names only %v", named)
	}
	lines := 0
	for _, file := range named {
		n := strings.Count(read(t, file), "\n")
		lines += n
		t.Logf("%4d %s", n, file)
	}
	if lines > linesToRead {
		t.Errorf("they have %d lines, want at most %d: what could a newcomer skip?", lines, linesToRead)
	}
	t.Logf("%4d in all", lines)
}
