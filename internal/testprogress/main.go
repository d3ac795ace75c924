// Command testprogress runs go test and prints a line when a package begins and when it ends: how many are left, and in
// about how many seconds all are tested, by how long they took the last time under the same flags.
//
//	testprogress -race -timeout 20m ./...
//
// Its arguments are those of go test; packages come last and begin with a dot. It prints what tests that failed have
// printed, and names those that skipped themselves. It exits as go test does.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	cache, _ := os.UserCacheDir() // without one the file is in a folder that is not there
	err := run(ctx, os.Args[1:], os.Stdout, filepath.Join(cache, "ratelimitd", "test-seconds.json"))
	stop()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "testprogress:", err)
		os.Exit(1)
	}
}

// run has go test run with args. Times are read from file, which need not be there, and written to it.
func run(ctx context.Context, args []string, out io.Writer, file string) error {
	n := len(args)
	for n > 0 && strings.HasPrefix(args[n-1], ".") {
		n--
	}
	const withTests = "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"
	list := exec.CommandContext(ctx, "go", append([]string{"list", "-e", "-f", withTests}, args[n:]...)...)
	list.Stderr = os.Stderr
	packages, err := list.Output()
	if err != nil {
		return err
	}
	p := &progress{out: out, now: time.Now, flags: strings.Join(args[:n], " "), times: map[string]float64{}, left: map[string]*state{}}
	for _, name := range strings.Fields(string(packages)) {
		p.left[name] = &state{}
	}
	if text, err := os.ReadFile(file); err == nil {
		_ = json.Unmarshal(text, &p.times) // what cannot be read is not known
	}
	test := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	test.Stderr = os.Stderr
	test.Cancel = func() error { return test.Process.Signal(os.Interrupt) }
	events, err := test.StdoutPipe()
	if err == nil {
		err = test.Start()
	}
	if err != nil {
		return err
	}
	p.read(events)
	err = test.Wait()
	p.end()
	if text, err := json.MarshalIndent(p.times, "", "\t"); err == nil {
		_ = os.WriteFile(file, text, 0o600) // or else the next run knows no times
	}
	return err
}

// event is a line of go test -json: go doc test2json, go help buildjson.
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// state is that of a package that has not ended.
type state struct {
	began time.Time
	lines []event
	ended map[string]string // tests, and how
}

type progress struct {
	out     io.Writer
	now     func() time.Time
	flags   string
	times   map[string]float64 // seconds of the last run, by flags and package
	left    map[string]*state
	failed  []string
	skipped []string
}

// read follows events. What is none is printed as it is.
func (p *progress) read(events io.Reader) {
	for lines := bufio.NewReader(events); ; {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(p.out, line)
		case e.Action == "build-output":
			fmt.Fprint(p.out, e.Output)
		case p.left[e.Package] != nil:
			p.note(&e, p.left[e.Package])
		}
		if err != nil {
			return
		}
	}
}

func (p *progress) note(e *event, of *state) {
	switch {
	case e.Action == "output":
		of.lines = append(of.lines, *e)
	case e.Action == "start":
		of.began, of.ended = p.now(), make(map[string]string)
		fmt.Fprintf(p.out, "...   %s%s\n", e.Package, seconds(": %.0f s the last time", p.times[p.flags+" "+e.Package]))
	case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
	case e.Test != "":
		of.ended[e.Test] = e.Action
		if e.Action == "skip" {
			p.skipped = append(p.skipped, e.Package+"."+e.Test)
		}
	default:
		p.endOf(e, of)
	}
}

// endOf prints what the tests of a package have printed that did not pass, and how it ended.
func (p *progress) endOf(e *event, of *state) {
	for _, line := range of.lines {
		how, frame := of.ended[line.Test], strings.HasPrefix(line.Output, "=== ")
		if strings.Contains(" "+p.flags+" ", " -v ") || e.Action == "fail" && how != "pass" && how != "skip" && !frame {
			fmt.Fprint(p.out, line.Output)
		}
	}
	delete(p.left, e.Package)
	if e.Action == "fail" {
		p.failed = append(p.failed, e.Package)
	} else if e.Elapsed > 0 {
		p.times[p.flags+" "+e.Package] = e.Elapsed
	}
	word := cmp.Or(map[string]string{"pass": "ok", "fail": "FAIL"}[e.Action], e.Action)
	fmt.Fprintf(p.out, "%-5s %s %.1f s; %d left%s\n", word, e.Package, e.Elapsed, len(p.left), seconds(", about %.0f s", p.estimate()))
}

// estimate returns in how many seconds all is tested, by the last times: what the longest package takes, or all of them by
// as many at a time as there are processors. 0: nothing is known.
func (p *progress) estimate() float64 {
	var sum, longest float64
	for name, of := range p.left {
		s := p.times[p.flags+" "+name]
		if !of.began.IsZero() {
			s = max(0, s-p.now().Sub(of.began).Seconds())
		}
		sum, longest = sum+s, max(longest, s)
	}
	return max(longest, sum/float64(runtime.GOMAXPROCS(0)))
}

// end names what failed, and what skipped itself.
func (p *progress) end() {
	if len(p.failed) > 0 {
		fmt.Fprintln(p.out, "FAIL:", strings.Join(p.failed, ", "))
	}
	if len(p.skipped) > 0 && !strings.Contains(p.flags, "-short") {
		fmt.Fprintf(p.out, "%d skipped: %s\n", len(p.skipped), strings.Join(p.skipped, ", "))
	}
}

// seconds formats n, or returns nothing if it is not known.
func seconds(format string, n float64) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(format, n)
}
