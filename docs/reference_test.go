package docs_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestFlagsAreUpToDate compares reference/flags.md with the help of every command.
func TestFlagsAreUpToDate(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	b := &strings.Builder{}
	b.WriteString(`# Flags

<!-- Made from the help of the commands: go test ./docs -run UpToDate -update -->

Every flag of a server has an environment variable and a key in the ` + "`--config`" + ` file. For ` + "`--log-level`" + ` these are ` +
		"`RATELIMITD_LOG_LEVEL` and `log-level:`" + `. A flag beats the environment, which beats the file.
`)
	bin := filepath.Join(build(t), "ratelimitd")
	explained := map[option]string{}
	for _, command := range commandsOf(t, bin) {
		writeFlags(b, command, flagsOf(t, bin, command), explained)
	}
	compare(t, "reference/flags.md", b.String())
}

// writeFlags writes the section of a command. It only names flags that the section of another command explains.
func writeFlags(b *strings.Builder, command string, flags []option, explained map[option]string) {
	if len(flags) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## ratelimitd %s\n", command)
	shared := map[string][]string{}
	var others, rows []string
	for _, o := range flags {
		if other := explained[o]; other != "" {
			if shared[other] = append(shared[other], "`"+o.name+"`"); len(shared[other]) == 1 {
				others = append(others, other)
			}
			continue
		}
		explained[o] = command
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |\n", o.name, o.takes, o.normally, o.meaning))
	}
	for _, other := range others {
		fmt.Fprintf(b, "\nAs for [%s](#ratelimitd-%s): %s.\n", other, strings.ReplaceAll(other, " ", "-"), strings.Join(shared[other], ", "))
	}
	if len(rows) > 0 {
		b.WriteString("\n| flag | takes | default | meaning |\n|---|---|---|---|\n" + strings.Join(rows, ""))
	}
}

// option is a flag in the form of the help.
type option struct{ name, takes, normally, meaning string }

var (
	optionLine  = regexp.MustCompile(`(?m)^ +(?:-\w, +)?(--[a-z-]+)(?: (\S+))?  +(\S.*)$`)
	normally    = regexp.MustCompile(` \(default:? ([^()]+(?:\([^()]*\)[^()]*)?)\)$`)
	wrapped     = regexp.MustCompile(`\n {20,}`) // a continuation on the next line
	commandLine = regexp.MustCompile(`(?m)^  ([a-z-]+)  +\S`)
)

func flagsOf(t *testing.T, bin, command string) (options []option) {
	t.Helper()
	for _, found := range optionLine.FindAllStringSubmatch(wrapped.ReplaceAllString(help(t, bin, command), " "), -1) {
		o := option{name: found[1], takes: found[2], meaning: strings.ReplaceAll(found[3], "|", `\|`)}
		if o.name == "--help" {
			continue
		}
		if d := normally.FindStringSubmatch(o.meaning); d != nil {
			o.normally, o.meaning = unquoted(d[1]), strings.TrimSuffix(o.meaning, d[0])
		}
		options = append(options, o)
	}
	slices.SortFunc(options, func(a, b option) int { return strings.Compare(a.name, b.name) })
	return options
}

func unquoted(text string) string {
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

// commandsOf returns the commands that have flags of their own, serve first.
func commandsOf(t *testing.T, bin string) []string {
	t.Helper()
	commands := []string{"serve"}
	var list func(parent string)
	list = func(parent string) {
		_, rest, _ := strings.Cut(help(t, bin, parent), "Usage:\n")
		rest, _, _ = strings.Cut(rest, "\nFlags:\n")
		for _, c := range commandLine.FindAllStringSubmatch(rest, -1) {
			name := strings.TrimSpace(parent + " " + c[1])
			if name != "serve" && name != "help" && name != "completion" {
				commands = append(commands, name)
				list(name)
			}
		}
	}
	list("")
	return commands
}

func help(t *testing.T, bin, command string) string {
	t.Helper()
	out, err := exec.Command(bin, append(strings.Fields(command), "--help")...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestMetricsAreUpToDate compares reference/metrics.md with the code.
func TestMetricsAreUpToDate(t *testing.T) {
	b := &strings.Builder{}
	b.WriteString(`# Metrics

<!-- Made from the code: go test ./docs -run UpToDate -update -->

` + "`GET /metrics`" + ` has these in the format of Prometheus, beside those of Go's runtime and of the process. ` +
		`They can be [sent by OpenTelemetry](../../deploy/monitoring/README.md#by-opentelemetry). ` +
		`[Alerts and a dashboard](../../deploy/monitoring/README.md), with [a runbook](../runbook.md).

| metric | kind | labels | meaning |
|---|---|---|---|
`)
	for _, m := range metrics(t) {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, strings.Join(m.labels, ", "), m.help)
	}
	compare(t, "reference/metrics.md", b.String())
}

type metric struct {
	name, kind, help string
	labels           []string
}

// metrics returns the metrics in the code, by name.
func metrics(t *testing.T) (all []metric) {
	t.Helper()
	for _, folder := range []string{"../internal/metrics", "../internal/cli/serve"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, metricsIn(file)...)
		}
	}
	if len(all) < 30 {
		t.Fatalf("%d metrics are found", len(all))
	}
	slices.SortFunc(all, func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	return all
}

// metricsIn returns the metrics that a file makes: by calls with their name, their help and their labels, or by options.
// The labels are then strings in the call that makes the metric.
func metricsIn(file *ast.File) (found []metric) {
	lists := map[string][]string{} // variables that are lists of strings
	var calls []*ast.CallExpr
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			calls = append(calls, n)
			if m, ok := metricMadeBy(n, lists); ok {
				found = append(found, m)
			}
		case *ast.AssignStmt:
			for i, right := range n.Rhs {
				if name, ok := n.Lhs[i].(*ast.Ident); ok && i < len(n.Lhs) {
					lists[name.Name] = texts(right, nil)
				}
			}
		case *ast.ValueSpec:
			for i, value := range n.Values {
				lists[n.Names[i].Name] = texts(value, nil)
			}
		case *ast.CompositeLit:
			if m, ok := metricOf(n); ok {
				m.labels = labelsOf(n, calls, lists)
				found = append(found, m)
			}
		}
		return true
	})
	return found
}

// metricMadeBy returns the metric that a call makes which begins with its name and its help.
func metricMadeBy(call *ast.CallExpr, lists map[string][]string) (m metric, ok bool) {
	made, isMethod := call.Fun.(*ast.SelectorExpr)
	if !isMethod || len(call.Args) < 2 {
		return m, false
	}
	m.name, m.help = strings.Join(texts(call.Args[0], nil), ""), strings.Join(texts(call.Args[1], nil), "")
	m.kind = kindOf(m.name, made.Sel.Name == "histograms")
	for _, label := range call.Args[2:] {
		m.labels = append(m.labels, texts(label, lists)...)
	}
	return m, strings.HasPrefix(m.name, "ratelimitd_") && m.help != ""
}

func kindOf(name string, histogram bool) string {
	switch {
	case histogram:
		return "histogram"
	case strings.HasSuffix(name, "_total"):
		return "counter"
	}
	return "gauge"
}

func metricOf(literal *ast.CompositeLit) (m metric, ok bool) {
	for _, element := range literal.Elts {
		if pair, isPair := element.(*ast.KeyValueExpr); isPair {
			switch fmt.Sprint(pair.Key) {
			case "Name":
				m.name = strings.Join(texts(pair.Value, nil), "")
			case "Help":
				m.help = strings.Join(texts(pair.Value, nil), "")
			}
		}
	}
	m.kind = kindOf(m.name, false)
	return m, strings.HasPrefix(m.name, "ratelimitd_")
}

// labelsOf returns the strings beside the options in the innermost call that has them.
func labelsOf(literal *ast.CompositeLit, calls []*ast.CallExpr, lists map[string][]string) []string {
	for _, call := range slices.Backward(calls) {
		for i, argument := range call.Args {
			if argument == ast.Expr(literal) {
				var labels []string
				for _, other := range call.Args[i+1:] {
					labels = append(labels, texts(other, lists)...)
				}
				return labels
			}
		}
	}
	return nil
}

// texts returns the strings of an expression: a string, a sum or a list of them, or a
// variable of lists.
func texts(e ast.Expr, lists map[string][]string) (all []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []string{text}
		}
	case *ast.BinaryExpr:
		return append(texts(e.X, lists), texts(e.Y, lists)...)
	case *ast.CompositeLit:
		for _, element := range e.Elts {
			all = append(all, texts(element, lists)...)
		}
	case *ast.Ident:
		return lists[e.Name]
	}
	return all
}

// compare compares a page with the wanted text, or writes the page.
func compare(t *testing.T, page, want string) {
	t.Helper()
	if *update {
		writeFile(t, page, want)
	}
	if got := read(t, page); got != want {
		t.Errorf("%s is out of date: run go test ./docs -run UpToDate -update", page)
	}
}
