// Package docs_test compares the pages of this folder with the code: the tests, metrics, flags and headings that they
// name.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// TestNamedTestsExist checks that the tests that pages name exist.
func TestNamedTestsExist(t *testing.T) {
	tests := sources(t, "_test.go")
	suite := sources(t, "storetest.go")
	found := 0
	for _, page := range pages(t) {
		for _, name := range regexp.MustCompile("`(Test|Fuzz|Benchmark)[A-Za-z0-9]+(/[A-Za-z0-9]+)?`").FindAllString(read(t, page), -1) {
			found++
			test, part, _ := strings.Cut(strings.Trim(name, "`"), "/")
			if !strings.Contains(tests, "func "+test+"(") {
				t.Errorf("%s: there is no %s", page, test)
			}
			if part != "" && !strings.Contains(suite, `{"`+part+`", `) {
				t.Errorf("%s: storetest has no %s", page, part)
			}
		}
	}
	if found < 200 {
		t.Errorf("%d tests are named: the tables are gone, or this test does not find them", found)
	}
}

// TestNamedMetricsExist checks that the metrics that pages name exist.
func TestNamedMetricsExist(t *testing.T) {
	known := make(map[string]bool)
	for _, m := range metrics(t) {
		known[m.name] = true
	}
	for _, page := range append(newPages(t), "../README.md") {
		for _, name := range regexp.MustCompile(`ratelimitd_[a-z_]+[a-z]`).FindAllString(read(t, page), -1) {
			if !known[name] && !known[histogramPart.ReplaceAllString(name, "")] {
				t.Errorf("%s: there is no metric %s", page, name)
			}
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

// TestTermsAreTypes looks for the types in the table of terms.
func TestTermsAreTypes(t *testing.T) {
	_, table, _ := strings.Cut(read(t, "../CONTRIBUTING.md"), "### Terms as types\n")
	table, _, _ = strings.Cut(table, "\n## ")
	found := regexp.MustCompile("`([a-z]+)\\.([A-Z][A-Za-z]+)`").FindAllStringSubmatch(table, -1)
	if len(found) < 20 {
		t.Errorf("%d types are named: the table is gone, or this test does not find it", len(found))
	}
	for _, f := range found {
		declared := false
		for _, folder := range []string{"../internal/", "../internal/limiter/"} {
			files, _ := filepath.Glob(folder + f[1] + "/*.go")
			for _, file := range files {
				declared = declared || strings.Contains(read(t, file), "\ntype "+f[2]+" ")
			}
		}
		if !declared {
			t.Errorf("CONTRIBUTING.md: there is no type %s.%s", f[1], f[2])
		}
	}
}

// histogramPart is the end of the name of a histogram's series.
var histogramPart = regexp.MustCompile(`_(bucket|sum|count)$`)

var fileMember = regexp.MustCompile(`(?m)^\s*(?:\{"([a-z_]+)", |"([a-z-]+)": +func\()`)

// TestMembersAreInTheReference looks for every member of a file that people write in the
// page that explains it.
func TestMembersAreInTheReference(t *testing.T) {
	for page, files := range map[string][]string{
		"reference/policies.md": {"policyfile/members.go"},
		"reference/envoy.md":    {"policyfile/readenvoy.go"},
		"reference/proxy.md":    {"proxy/file.go"},
	} {
		text := read(t, page)
		for _, file := range files {
			members := fileMember.FindAllStringSubmatch(read(t, filepath.Join("../internal", file)), -1)
			if len(members) == 0 {
				t.Errorf("no members are found in %s", file)
			}
			for _, m := range members {
				if name := m[1] + m[2]; !strings.Contains(text, "`"+name+"`") && !strings.Contains(text, name+":") {
					t.Errorf("%s does not mention %s", page, name)
				}
			}
		}
	}
}

// TestPoliciesAreValid reads the policy files and the limits that pages show.
func TestPoliciesAreValid(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		text := read(t, page)
		var examples []string
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			if b[1] == "yaml" && strings.HasPrefix(b[3], "policies:") {
				examples = append(examples, b[3])
			}
		}
		for _, l := range regexp.MustCompile("`({algorithm: .*?})`").FindAllStringSubmatch(text, -1) {
			examples = append(examples, "policies:\n  - name: example\n    limits: ["+l[1]+"]\n")
		}
		found += len(examples)
		for _, example := range examples {
			if _, err := policyfile.Parse(page, []byte(example)); err != nil {
				t.Errorf("%v in\n%s", err, example)
			}
		}
	}
	if found < 20 {
		t.Errorf("%d examples found", found)
	}
}

var link = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]*)?\)`)

// TestLinksLeadSomewhere checks all links within the repository, including their headings.
func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range append(pages(t), "../README.md", "../CONTRIBUTING.md", "../CHANGELOG.md", "../client/README.md") {
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

// headings returns the anchors of a page, in GitHub's form.
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
	var found []string
	for _, pattern := range []string{"*.md", "*/*.md"} {
		some, err := filepath.Glob(pattern)
		if err != nil || len(some) == 0 {
			t.Fatalf("%s: %d pages, %v", pattern, len(some), err)
		}
		found = append(found, some...)
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

// sources returns all files of the project whose names end in suffix.
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
