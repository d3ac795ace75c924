package client_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestModulesAreThoseOfTheReadme compares what `go mod graph` names with README.md, and what is compiled.
func TestModulesAreThoseOfTheReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Required modules\n")
	rows := found(regexp.MustCompile("(?m)^\\| `([^`]+)` \\|"), section)
	more := slices.DeleteFunc(found(regexp.MustCompile("`([a-z.]+/[^`]+)`"), section), func(m string) bool { return slices.Contains(rows, m) })

	const client = "github.com/ratelimitd/ratelimitd/client"
	var required, others []string
	for line := range strings.Lines(goTool(t, "mod", "graph")) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), " ")
		module, _, _ := strings.Cut(to, "@")
		switch {
		case module == "go" || module == "toolchain":
		case from == client:
			required = append(required, module)
		default:
			others = append(others, module)
		}
	}
	others = slices.DeleteFunc(others, func(m string) bool { return slices.Contains(required, m) })
	mustBeModules(t, "what it requires", required, rows)
	mustBeModules(t, "what else the graph names", others, more)
	compiled := strings.Fields(goTool(t, "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}", "./..."))
	mustBeModules(t, "what is compiled", compiled, append(rows, client))
}

// found returns the names in text that pattern has in its group.
func found(pattern *regexp.Regexp, text string) (all []string) {
	for _, f := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, f[1])
	}
	return all
}

// goTool runs the go command on this module, whatever workspace there is.
func goTool(t *testing.T, arguments ...string) string {
	t.Helper()
	tool := exec.Command("go", arguments...)
	tool.Env = append(os.Environ(), "GOWORK=off")
	out, err := tool.Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func mustBeModules(t *testing.T, what string, got, want []string) {
	t.Helper()
	got, want = sorted(got), sorted(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, README.md has %q", what, got, want)
	}
}

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }
