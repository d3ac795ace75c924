package yamlfile_test

import (
	"bytes"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// FuzzParseYAML holds that nodes are bounded in number and depth, that each is where it
// says, and that a file without nodes has a mistake or nothing in it.
func FuzzParseYAML(f *testing.F) {
	for _, seed := range []string{
		"a: 1\nb: [x, 'y', \"z\"]\nc:\n  - d: true\n", "\ufeffa: 1\r\n", "a: &b c\nd: *b\n", "<<: {a: b}", "a: !!str b", "---\na: 1\n---\nb: 2\n",
		"a: |\n  b\n  c\n", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "- - - - - a", "? a\n: b",
		"{a: , b}", "%YAML 1.2\n---\na", "\ta: 1", "a: 1\na: 2", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file := yamlfile.Parse("f.yaml", data)
		if err := file.Err(); err != nil && len(err.Error()) > 1<<16+8*len(data) {
			t.Fatalf("%d bytes have mistakes of %d bytes", len(data), len(err.Error()))
		}
		if file.Root == nil {
			return
		}
		w := walker{t: t, lines: 1 + bytes.Count(data, []byte("\n")) + bytes.Count(data, []byte("\r")), most: 2*len(data) + 1}
		w.walk(file.Root, 0)
	})
}

// walker looks at every node of a file of so many lines, in which there can be as many.
type walker struct {
	t           *testing.T
	lines, most int
}

func (w *walker) walk(n *yamlfile.Node, depth int) {
	if w.most--; w.most < 0 || depth > yamlfile.MaxDepth+1 || n.Line > w.lines {
		w.t.Fatalf("a node on line %d of %d, %d deep, at %q", n.Line, w.lines, depth, n.Path)
	}
	for _, m := range n.Members {
		w.walk(m.Value, depth+1)
	}
	for _, item := range n.Items {
		w.walk(item, depth+1)
	}
}
