package broken_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/broken"
)

const root = "../.."

func builds(t *testing.T) []broken.Build {
	t.Helper()
	all, err := broken.Builds()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestEveryBuildStillApplies checks that the list is up to date: each old text is in
// its file once, and the changed package compiles.
func TestEveryBuildStillApplies(t *testing.T) {
	packages := make(map[string]*pkg)
	names := make(map[string]bool)
	for _, b := range builds(t) {
		if names[b.Name] {
			t.Errorf("there are two builds %s", b.Name)
		}
		names[b.Name] = true
		files, err := b.Apply(root)
		if err != nil {
			t.Error(err)
			continue
		}
		for name := range files {
			if folder := filepath.Dir(name); !strings.HasSuffix(name, "_test.go") {
				if packages[folder] == nil {
					packages[folder] = load(t, folder)
				}
				packages[folder].check(t, &b, folder, files)
			}
		}
	}
}

// TestEveryBuildIsCaughtBySomething checks that each build names what catches it, and that
// few of them are vital.
func TestEveryBuildIsCaughtBySomething(t *testing.T) {
	vital := 0
	for _, b := range builds(t) {
		if len(b.Tests) == 0 && b.Finds == 0 {
			t.Errorf("%s: it names no test and no number of schedules", b.Name)
		}
		if b.Vital {
			vital++
		}
	}
	if vital < 5 || vital > 10 {
		t.Errorf("%d builds are vital: CI has time for about eight", vital)
	}
}

// TestEveryRuleOfOwnersHasABuild checks that a build breaks each rule.
func TestEveryRuleOfOwnersHasABuild(t *testing.T) {
	left := make(map[int]bool)
	for _, b := range builds(t) {
		left[b.Rule] = true
	}
	for rule := 1; rule <= broken.Rules; rule++ {
		if !left[rule] {
			t.Errorf("no build breaks rule %d", rule)
		}
	}
}

// TestTestsThatCatchBuildsExist checks that each test that should catch a build is in the named package:
// otherwise only a run of all builds, which takes an hour, would find a missing one.
func TestTestsThatCatchBuildsExist(t *testing.T) {
	texts := make(map[string]string)
	for _, b := range builds(t) {
		for _, test := range b.Tests {
			pkg, name := broken.Split(test)
			if _, known := texts[pkg]; !known {
				files, err := filepath.Glob(filepath.Join(root, "internal", pkg, "*_test.go"))
				if err != nil {
					t.Fatal(err)
				}
				for _, file := range files {
					text, err := os.ReadFile(file)
					if err != nil {
						t.Fatal(err)
					}
					texts[pkg] += string(text)
				}
			}
			name, _, _ = strings.Cut(name, "/")
			if !strings.Contains(texts[pkg], "\nfunc "+name+"(") {
				t.Errorf("%s: there is no %s in internal/%s", b.Name, name, pkg)
			}
		}
	}
}

// TestEveryBuildIsInTheTable checks that the page has a row for each build, with the tests
// that catch it, and no other rows.
func TestEveryBuildIsInTheTable(t *testing.T) {
	const name = "docs/contributing/broken-builds.md"
	page, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "\n|---|---|---|---|---|\n")
	rows := make(map[string]string)
	for row := range strings.Lines(table) {
		build, rest, _ := strings.Cut(strings.TrimPrefix(row, "| "), " | ")
		rows[build] = rest
	}
	for _, b := range builds(t) {
		var tests []string
		for _, test := range b.Tests {
			_, of, found := strings.Cut(test, ".")
			if !found {
				of = test
			}
			tests = append(tests, "`"+of+"`")
		}
		if want := fmt.Sprintf("%s | %s | %s | ", b.Broke, b.RuleName(), strings.Join(tests, ", ")); !strings.HasPrefix(rows[b.Name], want) {
			t.Errorf("%s: the row of %q does not begin with %q: run make broken", name, b.Name, want)
		}
		delete(rows, b.Name)
	}
	for build := range rows {
		t.Errorf("%s: there is no build %q", name, build)
	}
}

// pkg is a package of the service without its tests.
type pkg struct {
	set     *token.FileSet
	files   map[string]*ast.File
	imports types.Importer
}

// load parses the package in folder, and finds what the packages that it imports export.
func load(t *testing.T, folder string) *pkg {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export,Dir,GoFiles,DepOnly", "./"+folder)
	list.Dir = root
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	p := &pkg{set: token.NewFileSet(), files: make(map[string]*ast.File)}
	exports := make(map[string]string)
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var of struct {
			ImportPath, Export, Dir string
			GoFiles                 []string
			DepOnly                 bool
		}
		if err := decoder.Decode(&of); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[of.ImportPath] = of.Export
		if of.DepOnly {
			continue
		}
		for _, name := range of.GoFiles {
			if p.files[name], err = parser.ParseFile(p.set, filepath.Join(of.Dir, name), nil, parser.SkipObjectResolution); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.imports = importer.ForCompiler(p.set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	return p
}

// check fails t if p does not compile with files instead of its own.
func (p *pkg) check(t *testing.T, b *broken.Build, folder string, files map[string][]byte) {
	t.Helper()
	var parsed []*ast.File
	for name, file := range p.files {
		text, changed := files[folder+"/"+name]
		if changed {
			var err error
			if file, err = parser.ParseFile(p.set, name, text, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", b.Name, err)
				return
			}
		}
		parsed = append(parsed, file)
	}
	slices.SortFunc(parsed, func(a, b *ast.File) int { return int(a.Pos() - b.Pos()) })
	config := types.Config{Importer: p.imports}
	if _, err := config.Check(folder, p.set, parsed, nil); err != nil {
		t.Errorf("%s does not compile: %v", b.Name, err)
	}
}
