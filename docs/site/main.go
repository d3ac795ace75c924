// Command site prepares the pages of this repository for a site's generator: all Markdown files in their folders, with
// links to other files on GitHub, the same call in several languages as tabs, and the groups of pages as navigation.
//
//	go run ./docs/site bin/site # then zensical build --strict --config-file bin/site/mkdocs.yml
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const source = "https://github.com/ratelimitd/ratelimitd/blob/main/"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./docs/site FOLDER, at the top of the repository")
		os.Exit(2)
	}
	s := site{files: map[string]bool{}, titles: map[string]string{}}
	if err := s.layOut(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// layOut replaces mkdocs.yml and the folder pages in folder.
func (s *site) layOut(folder string) error {
	list, err := exec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md", "docs/images").Output()
	if err != nil {
		return fmt.Errorf("git ls-files: %w", err)
	}
	config, err := os.ReadFile("docs/site/mkdocs.yml")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(folder, "pages")); err != nil {
		return err
	}
	for _, file := range strings.Fields(string(list)) {
		if _, err := os.Stat(file); err == nil { // git lists deleted files, too
			s.files[file] = true
		}
	}
	for file := range s.files {
		if err := s.copyInto(folder, file); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(folder, "mkdocs.yml"), []byte(string(config)+s.nav()), 0o644)
}

// site has the pages and pictures by their paths from the top of the repository.
type site struct {
	files  map[string]bool
	titles map[string]string // of pages
}

func (s *site) copyInto(folder, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if path.Ext(file) == ".md" {
		s.titles[file] = titleOf(string(data))
		data = []byte(tabs(s.links(file, string(data))))
	}
	target := filepath.Join(folder, "pages", file)
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return os.WriteFile(target, data, 0o644)
}

func titleOf(page string) string {
	first, _, _ := strings.Cut(page, "\n")
	return strings.TrimPrefix(first, "# ")
}

var link = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)\s]*)?\)`)

// links makes links to files that are not pages lead to the source on GitHub, and links to a folder lead to its README.
func (s *site) links(file, page string) string {
	return link.ReplaceAllStringFunc(page, func(whole string) string {
		found := link.FindStringSubmatch(whole)
		to, heading := found[1], found[2]
		if strings.Contains(to, "://") {
			return whole
		}
		target := path.Join(path.Dir(file), to)
		switch {
		case s.files[target]:
			return whole
		case s.files[target+"/README.md"]:
			return "](" + strings.TrimSuffix(to, "/") + "/README.md" + heading + ")"
		}
		return "](" + source + target + heading + ")"
	})
}

var inLanguage = regexp.MustCompile("(?ms)^\\*\\*(curl|Go|TypeScript|Python|Java)\\*\\*\n\n(```.*?^```)$")

// tabs makes tabs of consecutive blocks under the names of their languages.
func tabs(page string) string {
	return inLanguage.ReplaceAllStringFunc(page, func(whole string) string {
		found := inLanguage.FindStringSubmatch(whole)
		return "=== \"" + found[1] + "\"\n\n    " + strings.ReplaceAll(found[2], "\n", "\n    ")
	})
}

// groups are the groups of the navigation, each with patterns (path.Match) of its pages in their order.
var groups = []struct {
	name  string
	pages []string
}{
	{"", []string{"README.md", "docs/start.md", "docs/concepts.md"}},
	{"How to", []string{"docs/howto/*.md"}},
	{"Operate", []string{"docs/runbook.md", "docs/security.md", "docs/performance.md", "deploy/*/README.md", "deploy/*/*/README.md"}},
	{"Reference", []string{"docs/api.md", "docs/reference/*.md"}},
	{"Clients and examples", []string{"client/README.md", "clients/*/README.md", "examples/*/README.md"}},
	{"Guarantees and design", []string{"docs/guarantees.md", "docs/design.md", "docs/design/*.md"}},
	{"", []string{"docs/faq.md", "CHANGELOG.md"}},
	{"Contributing", []string{"CONTRIBUTING.md", "docs/contributing/*.md"}},
}

// nav returns the navigation in the form of mkdocs.yml. Pages of one pattern are in the order of their titles.
func (s *site) nav() string {
	b := &strings.Builder{}
	b.WriteString("nav:\n")
	for _, g := range groups {
		indent := ""
		if g.name != "" {
			indent = "    "
			fmt.Fprintf(b, "  - %q:\n", g.name)
		}
		for _, pattern := range g.pages {
			for _, page := range s.matching(pattern) {
				fmt.Fprintf(b, "%s  - %q: %s\n", indent, s.titles[page], page)
			}
		}
	}
	return b.String()
}

func (s *site) matching(pattern string) (pages []string) {
	for page := range s.titles {
		if match, err := path.Match(pattern, page); err == nil && match {
			pages = append(pages, page)
		}
	}
	slices.SortFunc(pages, func(a, b string) int { return strings.Compare(s.titles[a], s.titles[b]) })
	return pages
}
