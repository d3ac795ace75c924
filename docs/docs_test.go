// Package docs_test holds what the pages of this folder say of the code against the
// code: the tests, metrics, flags and headings that they name.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist makes sure that no promise goes by a test that is gone.
func TestNamedTestsExist(t *testing.T) {
	tests := sources(t, "_test.go")
	suite := sources(t, "storetest.go")
	named := regexp.MustCompile("`Test[A-Za-z0-9]+(/[A-Za-z0-9]+)?`").FindAllString(read(t, "guarantees.md"), -1)
	if len(named) < 50 {
		t.Errorf("%d tests are named: the table is gone, or is not found here", len(named))
	}
	for _, name := range named {
		test, part, _ := strings.Cut(strings.Trim(name, "`"), "/")
		if !strings.Contains(tests, "func "+test+"(") {
			t.Errorf("guarantees.md: there is no %s", test)
		}
		if part != "" && !strings.Contains(suite, `{"`+part+`", `) {
			t.Errorf("guarantees.md: storetest has no %s", part)
		}
	}
}

// TestNamedMetricsExist makes sure that nobody is told to watch a metric that is gone.
func TestNamedMetricsExist(t *testing.T) {
	page, code := read(t, "operations.md"), sources(t, ".go")
	for _, name := range regexp.MustCompile(`ratelimitd_[a-z_]+[a-z]`).FindAllString(page, -1) {
		if !strings.Contains(code, `Name: "`+name+`"`) && !regexp.MustCompile(`Name: +"`+name+`"`).MatchString(code) {
			t.Errorf("operations.md: there is no metric %s", name)
		}
	}
}

// TestNamedFlagsExist looks for every flag that a page names in the help of the
// commands.
func TestNamedFlagsExist(t *testing.T) {
	help := sources(t, ".golden")
	for _, page := range pages(t) {
		for _, flag := range regexp.MustCompile("`--[a-z][a-z-]+").FindAllString(read(t, page), -1) {
			if flag = strings.TrimPrefix(flag, "`"); !strings.Contains(help, flag+" ") {
				t.Errorf("%s: no command has the flag %s", page, flag)
			}
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

// TestLinksLeadSomewhere follows all links within the repository, to their headings.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range append(pages(t), "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md") {
		for _, l := range link.FindAllStringSubmatch(read(t, page), -1) {
			to, heading := l[1], strings.TrimPrefix(l[2], "#")
			if strings.Contains(to, "://") {
				continue
			}
			path := page
			if to != "" {
				path = filepath.Join(filepath.Dir(page), to)
			}
			if _, err := os.Stat(path); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if heading != "" && !headings(read(t, path))[heading] {
				t.Errorf("%s: %s has no heading #%s", page, path, heading)
			}
		}
	}
}

var noAnchor = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// headings returns the anchors of a page, as they are made on GitHub.
func headings(page string) map[string]bool {
	anchors := make(map[string]bool)
	for line := range strings.Lines(page) {
		if text, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && strings.HasPrefix(line, "#") {
			text = noAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(text)), "")
			anchors[strings.ReplaceAll(text, " ", "-")] = true
		}
	}
	for _, id := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(page, -1) {
		anchors[id[1]] = true
	}
	return anchors
}

func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("*.md")
	if err != nil || len(found) == 0 {
		t.Fatalf("%d pages, %v", len(found), err)
	}
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// sources returns all files of the project whose names end so.
func sources(t *testing.T, suffix string) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"../internal", "../cmd", "."} {
		err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, suffix) {
				all.WriteString(read(t, path))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}
