//go:build unix

// Command faults tests the promises of ratelimitd on a real cluster whose nodes die, freeze and are slow, with
// processes that do the same and whose clocks differ:
//
//	faults [-seed 7] [-duration 5m] [-out DIR]     one run; exits with 1 on a violation
//	faults -check FILE [FILE ...]                  only the checks, on the histories of earlier runs
//
// It needs Go, to build ratelimitd with adjustable clocks, and Java and Maven for Cassandra.
// docs/guarantees.md has the promises that are checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults"
	"github.com/ratelimitd/ratelimitd/internal/faults/check"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// Exit codes.
const (
	exitOK        = 0
	exitViolation = 1
	exitFailure   = 2 // there is no history to judge
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// settings are those of one command line.
type settings struct {
	faults.Options
	out      string
	check    []string // histories
	offsets  string
	markdown bool
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("faults", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Uint64Var(&s.Seed, "seed", 1, "of the schedule; 0: any")
	flags.DurationVar(&s.Lasts, "duration", 5*time.Minute, "of calls and faults")
	flags.IntVar(&s.Processes, "processes", 3, "of ratelimitd")
	flags.DurationVar(&s.Tolerance, "tolerance", 200*time.Millisecond, "of clocks")
	flags.DurationVar(&s.StoreTimeout, "store-timeout", time.Second, "of ratelimitd")
	flags.StringVar(&s.offsets, "offsets", "",
		"of the processes' clocks, in turn: durations with commas between (default: the tolerance ahead, behind, none)")
	flags.StringVar(&s.Binary, "binary", "", "a ratelimitd that was built with the tag faults (default: one is built)")
	flags.StringVar(&s.out, "out", "",
		"folder for the history and all logs (default: a new one, of which only the history of a violation stays)")
	first := flags.String("check", "", "history to check again, instead of a run; more may follow the flags")
	flags.BoolVar(&s.markdown, "markdown", false, "print the reports as a table as well")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	if *first != "" {
		s.check = append([]string{*first}, flags.Args()...)
		return s, nil
	}
	if flags.NArg() > 0 || s.Processes < 2 || s.Lasts <= 0 || s.Tolerance <= 0 {
		return s, errors.New("give only flags, a positive -duration and -tolerance, and at least two processes")
	}
	if s.Seed == 0 {
		s.Seed = uint64(rand.Uint32()) + 1 // short enough to type
	}
	s.Offsets, err = parseOffsets(s.offsets, s.Tolerance)
	return s, err
}

func parseOffsets(list string, tolerance time.Duration) (offsets []time.Duration, err error) {
	if list == "" {
		return []time.Duration{tolerance, -tolerance, 0}, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("-offsets: %w", err)
		}
		offsets = append(offsets, d)
	}
	return offsets, nil
}

// run returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s, err := parse(args, stderr)
	if err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return exitFailure
	}
	var table check.Table
	var code int
	if len(s.check) > 0 {
		code, err = checkAgain(s.check, &table, stdout)
	} else {
		code, err = s.runOnce(ctx, &table, stdout, stderr)
	}
	if s.markdown {
		fmt.Fprintf(stdout, "\n%v", &table)
	}
	if err != nil {
		fmt.Fprintln(stderr, "faults:", err)
		return max(code, exitFailure)
	}
	return code
}

// checkAgain judges the histories of earlier runs.
func checkAgain(files []string, table *check.Table, stdout io.Writer) (code int, err error) {
	for _, name := range files {
		h, err := read(name)
		if err != nil {
			return exitFailure, err
		}
		code = max(code, judge(h, name, table, stdout))
	}
	return code, nil
}

// runOnce does one run and judges it.
func (s *settings) runOnce(ctx context.Context, table *check.Table, stdout, stderr io.Writer) (code int, err error) {
	temporary, err := os.MkdirTemp("", "faults-")
	if err != nil {
		return exitFailure, err
	}
	defer os.RemoveAll(temporary)
	s.Dir = temporary
	if s.out != "" {
		s.Dir = s.out
		if err := os.MkdirAll(s.Dir, 0o755); err != nil {
			return exitFailure, err
		}
	}
	s.Logf = func(format string, args ...any) { fmt.Fprintf(stderr, "faults: "+format+"\n", args...) }
	if s.Binary == "" {
		s.Binary = filepath.Join(temporary, "ratelimitd")
		if err := build(ctx, s.Binary); err != nil {
			return exitFailure, err
		}
	}
	h, err := faults.Run(ctx, s.Options)
	if h == nil {
		return exitFailure, err
	}
	file, keepErr := s.keep(h)
	if err := errors.Join(err, keepErr); err != nil {
		return exitFailure, err
	}
	code = judge(h, file, table, stdout)
	if code == exitOK && s.out == "" {
		return code, os.Remove(file)
	}
	return code, nil
}

// build builds the ratelimitd of this tree, with adjustable clocks.
func build(ctx context.Context, binary string) error {
	const module = "github.com/ratelimitd/ratelimitd/cmd/ratelimitd"
	out, err := exec.CommandContext(ctx, "go", "build", "-tags", "faults", "-o", binary, module).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building ratelimitd: %w: %s", err, out)
	}
	return nil
}

// keep writes h to a file and returns its name.
func (s *settings) keep(h *history.History) (name string, err error) {
	dir := s.out
	if dir == "" {
		dir = os.TempDir()
	}
	name = filepath.Join(dir, fmt.Sprintf("faults-%d-%d.jsonl", s.Seed, time.Now().Unix()))
	file, err := os.Create(name)
	if err != nil {
		return "", err
	}
	return name, errors.Join(history.Write(file, h), file.Close())
}

func read(name string) (*history.History, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return history.Read(file)
}

// judge checks h, prints the findings, and returns the exit code.
func judge(h *history.History, file string, table *check.Table, stdout io.Writer) int {
	found := check.History(h)
	fmt.Fprint(stdout, check.Report(h, found))
	table.Add(h, found)
	if len(found.Violations) == 0 {
		return exitOK
	}
	fmt.Fprintf(stdout, "\nseed %d; check it again with: go run ./internal/faults/cmd/faults -check %s\n", h.Header.Seed, file)
	return exitViolation
}
