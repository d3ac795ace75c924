package docs_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

var update = flag.Bool("update", false, "rewrite the outputs of commands and the generated pages")

func TestMain(m *testing.M) { cassandratest.Main(m) }

// TestCommandsPrintWhatPagesShow runs every command of a console block, page by page, and
// compares what it prints with the page. Blocks with a title are the files that the
// commands read.
func TestCommandsPrintWhatPagesShow(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program, and runs it on a real Cassandra")
	}
	for _, tool := range []string{"bash", "curl", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil && os.Getenv("CI") == "" {
			t.Skip(err) // pages use it
		}
	}
	bin, commands := build(t), 0
	examples, err := filepath.Glob("../examples/*/README.md")
	if err != nil {
		t.Fatal(err)
	}
	tested := func(page string) bool { return page == "../examples/simulate/README.md" } // by its own folder
	examples = slices.DeleteFunc(examples, tested)
	pages := append(newPages(t), examples...)
	pages = append(pages, "../README.md", "../client/README.md", "../clients/typescript/README.md", "../clients/python/README.md")
	var snippets []*snippet
	for _, page := range pages {
		snippets = append(snippets, snippetsOf(page, read(t, page))...)
	}
	compileSnippets(t, snippets)
	for _, page := range pages {
		text := read(t, page)
		if commands += strings.Count(text, "\n$ "); !strings.Contains(text, "```console\n") {
			continue
		}
		t.Run(strings.TrimPrefix(page, "../"), func(t *testing.T) {
			s := newSession(t, bin, text)
			if slices.Contains(examples, page) {
				s.copyFiles(filepath.Dir(page))
			}
			if got := s.play(text); *update && got != text {
				writeFile(t, page, got)
			}
			s.speak(slices.DeleteFunc(slices.Clone(snippets), func(s *snippet) bool { return s.page != page }))
		})
	}
	if commands < 20 {
		t.Errorf("%d commands found: pages have lost theirs, or this test does not find them", commands)
	}
}

// build returns the folder of a ratelimitd built from this tree.
func build(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin, "../cmd/ratelimitd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// session is a reader who follows one page: a folder of files, running servers, and ports and a Cassandra that replace
// those of the page.
type session struct {
	t       *testing.T
	dir     string
	env     []string
	toReal  *strings.Replacer // from the page's text to that of this machine
	toPage  *strings.Replacer // and back
	servers map[string]*server
}

var pagePort = regexp.MustCompile(`127\.0\.0\.1:8\d\d\d`)

func newSession(t *testing.T, bin, page string) *session {
	t.Helper()
	s := &session{t: t, dir: t.TempDir(), servers: map[string]*server{}}
	there := map[string]string{"127.0.0.1:8080": freeAddress(t)}
	for _, address := range pagePort.FindAllString(page, -1) {
		if there[address] == "" {
			there[address] = freeAddress(t)
		}
	}
	var here, back []string
	for address, free := range there {
		here, back = append(here, address, free), append(back, free, address)
	}
	s.env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RATELIMITD_") })
	writeFile(t, filepath.Join(s.dir, ".curlrc"), "no-progress-meter\n") // because pages show no progress
	s.env = append(s.env, "CURL_HOME="+s.dir, "PATH="+bin+":"+os.Getenv("PATH"),
		"RATELIMITD_LISTEN="+there["127.0.0.1:8080"], "RATELIMITD_SERVER=http://"+there["127.0.0.1:8080"])
	if strings.Contains(page, "--store cassandra") {
		hosts, keyspace := strings.Join(cassandratest.Hosts(t), ","), cassandratest.Keyspace(t)
		// A node that has just started beside other tests is slow.
		s.env = append(s.env, "RATELIMITD_CASSANDRA_KEYSPACE="+keyspace, "RATELIMITD_STORE_TIMEOUT=5s")
		here, back = append(here, "--cassandra-hosts 127.0.0.1", "--cassandra-hosts "+hosts), append(back, keyspace, "ratelimitd")
	}
	s.toReal, s.toPage = strings.NewReplacer(here...), strings.NewReplacer(back...)
	t.Cleanup(func() {
		for _, running := range s.servers {
			running.stop()
		}
	})
	return s
}

// copyFiles copies the files of folder, without its subfolders, into the reader's folder.
func (s *session) copyFiles(folder string) {
	s.t.Helper()
	files, err := os.ReadDir(folder)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range files {
		if !f.IsDir() {
			writeFile(s.t, filepath.Join(s.dir, f.Name()), s.toReal.Replace(read(s.t, filepath.Join(folder, f.Name()))))
		}
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns a free address. With several loopback addresses it is a random one of them, because other
// connections meanwhile take ports of 127.0.0.1.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", fmt.Sprintf("127.%d.%d.1:0", 1+rand.IntN(250), 1+rand.IntN(250)))
	if err != nil {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	}
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

var (
	block   = regexp.MustCompile("(?ms)^```([a-z]+)(?: title=\"([^\"]+)\")?\n(.*?)^```$")
	command = regexp.MustCompile(`(?m)^\$ ((?:.*\\\n)*.*\n)`)
)

// play follows the page from its top. It returns the page with the printed outputs in place of those that differ.
func (s *session) play(page string) string {
	return replaceAll(block, page, func(found []string) string {
		whole, language, title, body := found[0], found[1], found[2], found[3]
		if title != "" {
			writeFile(s.t, filepath.Join(s.dir, title), s.toReal.Replace(body))
		}
		if language != "console" {
			return whole
		}
		starts := command.FindAllStringSubmatchIndex(body, -1)
		played := ""
		for i, at := range starts {
			end := len(body)
			if i+1 < len(starts) {
				end = starts[i+1][0]
			}
			typed, shown := body[at[2]:at[3]], body[at[1]:end]
			played += "$ " + typed + s.run(typed, shown)
		}
		return strings.Replace(whole, body, played, 1)
	})
}

func replaceAll(re *regexp.Regexp, text string, with func([]string) string) string {
	return re.ReplaceAllStringFunc(text, func(whole string) string { return with(re.FindStringSubmatch(whole)) })
}

var (
	serves  = regexp.MustCompile(`^(make run|ratelimitd (serve|proxy))\b`)
	listens = regexp.MustCompile(`--listen (\S+)`)
	asks    = regexp.MustCompile(`^(ratelimitd (members|explain|check|override list)|curl -s \S+/(metrics|readyz|overshoot))`)
)

// run returns the command's output, or shown, if that is alike.
func (s *session) run(typed, shown string) string {
	typed = strings.TrimSpace(typed)
	if serves.MatchString(typed) {
		s.serve(typed, shown)
		return shown
	}
	var got string
	for try := 0; ; try++ {
		cmd := exec.Command("bash", "-c", s.toReal.Replace(typed))
		cmd.Dir, cmd.Env = s.dir, s.env
		out, _ := cmd.CombinedOutput() // a denial's exit code is 1
		if got = s.toPage.Replace(string(out)); got != "" && !strings.HasSuffix(got, "\n") {
			got += "\n"
		}
		if alike(shown, got) {
			return shown
		}
		if !asks.MatchString(typed) || try == 30 {
			break
		}
		time.Sleep(200 * time.Millisecond) // instances learn of each other's changes within a second
	}
	if *update {
		return got
	}
	s.t.Errorf("$ %s\nprints\n%s\nand the page shows\n%s", typed, got, shown)
	return shown
}

// serve starts the typed server, after it has stopped one at the same address.
func (s *session) serve(typed, shown string) {
	s.t.Helper()
	listen := "default"
	if found := listens.FindStringSubmatch(typed); found != nil {
		listen = found[1]
	}
	if before := s.servers[listen]; before != nil {
		before.stop()
	}
	real := strings.Replace(s.toReal.Replace(typed), "make run", "make --no-print-directory -C "+root(s.t)+" run", 1)
	running, err := start(real, s.dir, s.env)
	if err != nil {
		s.t.Fatal(err)
	}
	s.servers[listen] = running
	deadline := time.Now().Add(30 * time.Second)
	for line := range strings.Lines(shown) {
		for !strings.Contains(normal(s.toPage.Replace(running.printed())), normal(strings.TrimSpace(line))) {
			if time.Now().After(deadline) {
				s.t.Fatalf("$ %s\nprints\n%s\nand nothing like\n%s", typed, running.printed(), line)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// server is a command that runs until it is stopped.
type server struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	out bytes.Buffer
}

func start(command, dir string, env []string) (*server, error) {
	s := &server{cmd: exec.Command("bash", "-c", "exec "+command)}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = dir, env, s, s
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return s, s.cmd.Start()
}

// Write takes the server's output.
func (s *server) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}

func (s *server) printed() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// stop ends the server and its children, and waits for that.
func (s *server) stop() {
	_ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT)
	_ = s.cmd.Wait()
}

// vary matches texts that differ in each run.
var vary = []struct{ what, as string }{
	{`\d{4}-\d\d-\d\dT[0-9:.]+Z`, "TIME"},
	{`(?m)^(Date|X-Request-Id|Content-Length|Retry-After|X-Ratelimit-Reset): .*$`, "$1: …"},
	{`[A-Za-z0-9_-]{40,}`, "TOKEN"},
	{`\b[A-Z2-7]{26}\b`, "ID"},
	{`\b[0-9a-f]{16}\b`, "KEY"},
	{`(_ms":|before )\d+\b`, "${1}N"}, // a duration has no boundary there
	{`;t=\d+`, ";t=N"},
	{`\b(\d+d)?(\d+h)?(\d+m)?\d+(\.\d+)?(s|ms|h|m)\b`, "DURATION"},
	{`\d+\.\d %`, "N %"},
	{`\bview \d+`, "view N"}, // instances that start at the same time
	{`(true|false) +(true|false) +\d+`, "$1 $2 N"},
	{`127\.0\.0\.1:809\d`, "PEER"},
	{`[ \t]+`, " "},
	{`\r`, ""},
}

// normal returns the text without the parts that vary.
func normal(text string) string {
	for _, v := range vary {
		text = regexp.MustCompile(v.what).ReplaceAllString(text, v.as)
	}
	return strings.TrimSpace(text)
}

// alike reports whether shown and printed are equal, except for the parts that vary. An ellipsis matches any text.
func alike(shown, printed string) bool {
	pattern := regexp.QuoteMeta(normal(shown))
	pattern = strings.ReplaceAll(pattern, "…", "(?s:.*?)")
	return regexp.MustCompile("^" + pattern + "$").MatchString(normal(printed))
}

// TestAlike checks that a page with another output fails.
func TestAlike(t *testing.T) {
	const printed = "denied under per-hour of sms-send: retry after 59m58s\n"
	for shown, want := range map[string]bool{
		"denied under per-hour of sms-send: retry after 1h\n":     true,
		"denied under …: retry after 1h\n":                        true,
		"allowed under per-hour of sms-send: retry after 1h\n":    false,
		"denied under per-hour of sms-send: retry after 1h\nNAME": false,
		"": false,
	} {
		if got := alike(shown, printed); got != want {
			t.Errorf("%q: %v, want %v", shown, got, want)
		}
	}
	if fmt.Sprint(block.FindStringSubmatch("```yaml title=\"p.yaml\"\na: 1\n```")[1:]) != "[yaml p.yaml a: 1\n]" {
		t.Error("files are not found")
	}
}
