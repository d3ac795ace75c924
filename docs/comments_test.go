package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

// properNames are words with an inner capital that are not code.
var properNames = map[string]bool{
	"CloudFront": true, "ConfigMaps": true, "GiB": true, "GitHub": true, "HyperLogLog": true, "JavaScript": true,
	"Murmur3Partitioner": true, "MurmurHash3": true, "OpenTelemetry": true, "PromQL": true, "SplitMix64": true, "uXXXX": true,
}

var (
	codeWord = regexp.MustCompile(`[A-Za-z][A-Za-z0-9]+`)
	// qualifiedName is a package and an exported name.
	qualifiedName = regexp.MustCompile(`(?:^|[^A-Za-z0-9_./"'-])([a-z][a-z0-9]*)\.([A-Z][A-Za-z0-9]+)`)
	// linkedName is a link to a name of the same package.
	linkedName = regexp.MustCompile(`\[\*?([A-Z][A-Za-z0-9]*)\]`)
	// plainName is a word with an inner capital.
	plainName = regexp.MustCompile("(?:^|[^A-Za-z0-9_./\"'`@:-])([A-Za-z]?[a-z0-9]+(?:[A-Z][a-z0-9]*)+)\\b")
)

// names are the names in all Go code of the project.
type names struct {
	anywhere map[string]bool            // identifiers, and words in strings
	declared map[string]map[string]bool // by the name of their package
	comments []comment
}

type comment struct {
	at   token.Position
	of   string // the package that it is in
	text string
}

// readNames reads the Go files of all modules below root.
func readNames(t *testing.T, root string) *names {
	t.Helper()
	all := &names{anywhere: maps.Clone(properNames), declared: make(map[string]map[string]bool)}
	files := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (slices.Contains([]string{"testdata", "node_modules", "bin"}, d.Name()) || len(d.Name()) > 2 && d.Name()[0] == '.'):
			return filepath.SkipDir
		case path.Ext(name) != ".go":
			return nil
		}
		f, err := parser.ParseFile(files, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			all.read(files, f)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (n *names) read(files *token.FileSet, f *ast.File) {
	of := strings.TrimSuffix(f.Name.Name, "_test")
	if n.declared[of] == nil {
		n.declared[of] = make(map[string]bool)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			n.declared[of][d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					n.declared[of][s.Name.Name] = true
				case *ast.ValueSpec:
					for _, name := range s.Names {
						n.declared[of][name.Name] = true
					}
				}
			}
		}
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			n.anywhere[node.Name] = true
		case *ast.BasicLit:
			for _, word := range codeWord.FindAllString(node.Value, -1) {
				n.anywhere[word] = true
			}
		}
		return true
	})
	if ast.IsGenerated(f) {
		return
	}
	for _, group := range f.Comments {
		for _, c := range group.List {
			n.comments = append(n.comments, comment{files.Position(c.Pos()), of, c.Text})
		}
	}
}

// gone returns the names in c that do not exist.
func (n *names) gone(c *comment) (found []string) {
	for _, m := range qualifiedName.FindAllStringSubmatch(c.text, -1) {
		if declared, ok := n.declared[m[1]]; ok && !declared[m[2]] {
			found = append(found, m[1]+"."+m[2])
		}
	}
	for _, m := range linkedName.FindAllStringSubmatch(c.text, -1) {
		if !n.declared[c.of][m[1]] {
			found = append(found, "["+m[1]+"]")
		}
	}
	for _, m := range plainName.FindAllStringSubmatch(c.text, -1) {
		if !n.anywhere[m[1]] {
			found = append(found, m[1])
		}
	}
	return found
}

// TestNamesInComments checks that names in comments exist: after a name was moved or changed, its comments mislead.
func TestNamesInComments(t *testing.T) {
	if race.Enabled {
		t.Skip("one goroutine reads all Go files")
	}
	all := readNames(t, "..")
	for i := range all.comments {
		c := &all.comments[i]
		for _, name := range all.gone(c) {
			t.Errorf("%s: the comment names %s, which does not exist: write its current name, with its package "+
				"where that is another one. A proper name belongs to properNames in docs/comments_test.go", c.at, name)
		}
	}
	const other, plain = "no" + "SuchName", "No" + "SuchName" // otherwise this file would have them
	for text, want := range map[string]string{
		"// it wraps limiter." + plain:       "limiter." + plain, // a package of ours
		"// it wraps policy.Policy, io.Gone": "",                 // an existing name, and another module's package
		"// " + other + " is of " + plain:    other + " " + plain,
		"// it makes a [Bogus]":              "[Bogus]",
		"// a GiB, see TestNamesInComments":  "", // a proper name, and a test
	} {
		if got := strings.Join(all.gone(&comment{text: text}), " "); got != want {
			t.Errorf("%s: %q is nowhere, want %q", text, got, want)
		}
	}
}
