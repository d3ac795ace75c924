package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A page shows one call in several languages as blocks that follow each other, each under
// the name of its language. They are programs: the test runs the blocks of a group against
// the server that the page has started at 127.0.0.1:8080, and compares their actions. Blocks without a name are
// compiled alone. The folder testdata/calls declares what all of them use, such as sendCode.

// snippet is a block of Go, TypeScript, Python or Java of a page.
type snippet struct {
	page     string
	language string // go, ts, python or java
	group    int    // of the page; 0: it is compiled alone
	text     string
	program  []string // the command that runs the compiled block
}

var (
	labelled  = regexp.MustCompile("(?ms)(?:^\\*\\*(curl|Go|TypeScript|Python|Java)\\*\\*\n\n)?^```([a-z]+)[^\n]*\n(.*?)^```$")
	languages = []string{"go", "ts", "python", "java"}
)

// snippetsOf returns the blocks of a page. A group begins with its block of Go.
func snippetsOf(page, text string) (all []*snippet) {
	group := 0
	for _, b := range labelled.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(languages, b[2]) {
			continue
		}
		s := &snippet{page: page, language: b[2], text: strings.ReplaceAll(b[3], `"http://127.0.0.1:8080"`, "url")}
		if b[1] != "" {
			if b[2] == "go" {
				group++
			}
			s.group = group
		}
		all = append(all, s)
	}
	return all
}

// compileSnippets makes programs of snippets, which use the ratelimitd at RATELIMITD_SERVER.
func compileSnippets(t *testing.T, all []*snippet) {
	t.Helper()
	for _, language := range languages {
		some := slices.DeleteFunc(slices.Clone(all), func(s *snippet) bool { return s.language != language })
		if len(some) > 0 {
			map[string]func(*testing.T, []*snippet){
				"go": compileGo, "ts": compileTypeScript, "python": compilePython, "java": compileJava,
			}[language](t, some)
		}
	}
}

var goImports = map[string]string{
	"client.":        "github.com/ratelimitd/ratelimitd/client",
	"httplimit.":     "github.com/ratelimitd/ratelimitd/client/httplimit",
	"inprocess.":     "github.com/ratelimitd/ratelimitd/inprocess",
	"ratelimittest.": "github.com/ratelimitd/ratelimitd/ratelimittest",
	"http.":          "net/http",
	"log.":           "log",
	"tls.":           "crypto/tls",
	"time.":          "time",
}

// compileGo builds one program, in which each snippet is the body of a function.
func compileGo(t *testing.T, some []*snippet) {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, dir+"/around.go", read(t, "testdata/calls/around.go"))
	build := []string{"build", "-o", dir + "/pages", dir + "/around.go"}
	for i, s := range some {
		source := &strings.Builder{}
		source.WriteString("package main\n\nimport \"context\"\n")
		for name, path := range goImports {
			if regexp.MustCompile(`\b` + regexp.QuoteMeta(name)).MatchString(s.text) {
				fmt.Fprintf(source, "import %q\n", path)
			}
		}
		fmt.Fprintf(source, "\nfunc init() { pages[%q] = page%d }\n", fmt.Sprint(i), i)
		const page = "\nfunc page%d(ctx context.Context) error {\n//line %s:1\n%s\n_, _, _ = limits, err, ctx\nreturn nil\n}\n"
		fmt.Fprintf(source, page, i, s.page, s.text)
		path := filepath.Join(dir, s.file(i)+".go")
		writeFile(t, path, source.String())
		s.program = []string{dir + "/pages", fmt.Sprint(i)}
		build = append(build, path)
	}
	mustRun(t, "go", exec.Command("go", build...))
}

// compileTypeScript checks the types of all snippets in one run. It runs within the client's folder, where they can
// import the client and the frameworks of its tests.
func compileTypeScript(t *testing.T, some []*snippet) {
	t.Helper()
	client := absolute(t, "../clients/typescript")
	if !installed(t, client+"/node_modules/.bin/tsc") {
		return
	}
	mustRun(t, "the client", inFolder(client, exec.Command("npm", "run", "--silent", "prepare")))
	dir, err := os.MkdirTemp(client+"/dist", "pages-") // which git ignores
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	writeFile(t, dir+"/tsconfig.json", `{"extends": "../../tsconfig.json", "include": ["*.ts"], "compilerOptions":
		{"rootDir": ".", "outDir": "out", "declaration": false, "types": ["node"], "noUnusedLocals": false}}`)
	writeFile(t, dir+"/around.ts", read(t, "testdata/calls/around.ts"))
	for i, s := range some {
		writeFile(t, filepath.Join(dir, s.file(i)+".ts"), "import \"./around.js\";\n"+s.text+"\nexport {};\n")
		s.program = []string{"node", filepath.Join(dir, "out", s.file(i)+".js")}
	}
	mustRun(t, "ts", exec.Command(client+"/node_modules/.bin/tsc", "-p", dir))
}

// compilePython checks the types of all snippets in one run.
func compilePython(t *testing.T, some []*snippet) {
	t.Helper()
	client := absolute(t, "../clients/python")
	python := client + "/.venv/bin/python"
	if !installed(t, python) {
		return
	}
	dir := t.TempDir()
	writeFile(t, dir+"/around.py", read(t, "testdata/calls/around.py"))
	check := []string{"-m", "mypy", "--cache-dir", filepath.Join(dir, "cache"), "--check-untyped-defs"}
	for i, s := range some {
		path := filepath.Join(dir, s.file(i)+".py")
		writeFile(t, path, "from around import *\n"+s.text)
		s.program = []string{"env", "PYTHONPATH=" + client + "/src", python, path}
		check = append(check, path)
	}
	cmd := inFolder(dir, exec.Command(python, check...))
	cmd.Env = append(os.Environ(), "MYPYPATH="+client+"/src")
	mustRun(t, "python", cmd)
}

// compileJava compiles each snippet as the body of a method.
func compileJava(t *testing.T, some []*snippet) {
	t.Helper()
	client := absolute(t, "../clients/java")
	if !installed(t, client+"/target/classes") {
		return
	}
	mustRun(t, "the client", inFolder(client, exec.Command("mvn", "-q", "-B", "-o", "compile")))
	dir := t.TempDir()
	classes := client + "/target/classes" + string(filepath.ListSeparator) + dir
	compile := []string{"-Xlint:all,-auxiliaryclass", "-Werror", "-cp", classes, "-d", dir, absolute(t, "testdata/calls/around.java")}
	for i, s := range some {
		name := s.file(i)
		source := "import io.github.ratelimitd.client.*;\nimport java.time.Duration;\n\nclass " + name +
			" extends Around {\npublic static void main(String[] args) throws Exception {\n" + s.text + "\n}\n}\n"
		path := filepath.Join(dir, name+".java")
		writeFile(t, path, source)
		s.program = []string{"java", "-cp", classes, name}
		compile = append(compile, path)
	}
	mustRun(t, "java", exec.Command("javac", compile...))
}

// installed reports whether a tool of the clients is installed. `make clients` installs them.
func installed(t *testing.T, tool string) bool {
	t.Helper()
	_, err := os.Stat(tool)
	if err != nil && os.Getenv("CI") != "" {
		t.Fatalf("%v: run make clients", err)
	}
	if err != nil {
		t.Logf("not checked: %v: run make clients", err)
	}
	return err == nil
}

func inFolder(dir string, cmd *exec.Cmd) *exec.Cmd {
	cmd.Dir = dir
	return cmd
}

// mustRun runs a command, and shows its output if it fails.
func mustRun(t *testing.T, what string, cmd *exec.Cmd) {
	t.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", what, err, out)
	}
}

// file returns the name of the file of a page's block, without its extension.
func (s *snippet) file(i int) string {
	return fmt.Sprintf("%s_%d", strings.ReplaceAll(strings.TrimSuffix(filepath.Base(s.page), ".md"), "-", "_"), i)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// speak runs the groups of a page, and compares the actions of their languages.
func (s *session) speak(all []*snippet) {
	s.t.Helper()
	did := map[int]map[string]string{}
	for i, snippet := range all {
		if snippet.group == 0 || snippet.program == nil {
			continue
		}
		cmd := exec.Command(snippet.program[0], snippet.program[1:]...)
		cmd.Dir = s.dir
		cmd.Env = append(slices.Clone(s.env), fmt.Sprintf("PAGE_CALLER=%d", i)) // each language has counts of its own
		out, err := cmd.CombinedOutput()
		if err != nil {
			s.t.Errorf("%v:\n%s\nand prints\n%s", err, snippet.text, out)
		}
		if did[snippet.group] == nil {
			did[snippet.group] = map[string]string{}
		}
		did[snippet.group][snippet.language] = string(out)
	}
	printed := len(did) == 0
	for group, by := range did {
		for language, out := range by {
			if printed = printed || out != ""; out != by["go"] {
				s.t.Errorf("group %d: %s does %q, and Go %q", group, language, out, by["go"])
			}
		}
	}
	if !printed {
		s.t.Error("no block calls a function that prints, such as sendCode")
	}
}

// TestSnippets checks that blocks are found and put into groups.
func TestSnippets(t *testing.T) {
	page := "**curl**\n\n```console\n$ a\n```\n\n**Go**\n\n```go\nb\n```\n\n**Python**\n\n```python\nc\n```\n\nMore:\n\n```ts\nd\n```\n"
	var got []string
	for _, s := range snippetsOf("page", page) {
		got = append(got, fmt.Sprint(s.language, s.group, s.text))
	}
	if want := "[go1b\n python1c\n ts0d\n]"; fmt.Sprint(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}
