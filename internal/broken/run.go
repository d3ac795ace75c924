package broken

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Result is the outcome of a build.
type Result struct {
	Build
	CaughtBy  []string // those of its Tests that failed
	Missed    []string // those of its Tests that passed
	Schedules int      // schedules that the simulation needed to find it; 0: not found
}

// Err returns an error that names the tests that did not catch r's build, but should have.
func (r *Result) Err() error {
	switch {
	case len(r.Missed) > 0:
		return fmt.Errorf("%s: these tests pass: %s", r.Name, strings.Join(r.Missed, ", "))
	case r.Finds > 0 && r.Schedules == 0:
		return fmt.Errorf("%s: %d schedules of the simulation pass", r.Name, r.Finds)
	case len(r.CaughtBy) == 0 && r.Schedules == 0:
		return fmt.Errorf("%s: nothing catches it", r.Name)
	}
	return nil
}

// Bench compiles builds of the module at Root and runs their tests. Folder
// is for its files.
type Bench struct {
	Root, Folder string
	Schedules    int // schedules that the simulation tries for builds that it need not find
}

// Run compiles b and runs the tests that should catch it. It fails if b cannot be tried: an edit does not apply, or the
// result does not compile, panics or ends too late.
func (n *Bench) Run(ctx context.Context, b *Build) (Result, error) {
	r := Result{Build: *b}
	overlay, err := b.Overlay(n.Root, n.Folder)
	if err != nil {
		return r, err
	}
	compiled := make(map[string]string)
	tests := slices.DeleteFunc(slices.Clone(b.Tests), needsMore)
	schedules := max(b.Finds, n.Schedules)
	needed := tests
	if schedules > 0 {
		needed = append([]string{"TestSimulation"}, tests...)
	}
	for _, test := range needed {
		if pkg, _ := Split(test); compiled[pkg] == "" {
			if compiled[pkg], err = n.compile(ctx, pkg, overlay); err != nil {
				return r, fmt.Errorf("%s: %w", b.Name, err)
			}
		}
	}
	for _, test := range tests {
		pkg, name := Split(test)
		failed, _, err := n.try(ctx, pkg, compiled[pkg], "-test.run="+exactly(name))
		if err != nil {
			return r, fmt.Errorf("%s: %s: %w", b.Name, test, err)
		}
		if failed {
			r.CaughtBy = append(r.CaughtBy, test)
		} else {
			r.Missed = append(r.Missed, test)
		}
	}
	r.Schedules, err = n.simulate(ctx, compiled[limiterPackage], schedules)
	if err != nil {
		return r, fmt.Errorf("%s: the simulation: %w", b.Name, err)
	}
	return r, nil
}

// limiterPackage is the package of a test without a package name.
const limiterPackage = "limiter"

// Split returns the package of a test that catches a build, as a folder of internal, and its name there.
func Split(test string) (pkg, name string) {
	if pkg, name, found := strings.Cut(test, "."); found {
		return pkg, name
	}
	return limiterPackage, test
}

// needsMore reports whether test needs a Cassandra that is not there.
func needsMore(test string) bool {
	return strings.HasPrefix(test, "cassandra.") && os.Getenv("RATELIMITD_TEST_CASSANDRA_HOSTS") == ""
}

// exactly returns the pattern of one test, or part of a test.
func exactly(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = "^" + regexp.QuoteMeta(parts[i]) + "$"
	}
	return strings.Join(parts, "/")
}

// compile returns the path of pkg's tests, compiled with overlay.
func (n *Bench) compile(ctx context.Context, pkg, overlay string) (string, error) {
	path := filepath.Join(n.Folder, strings.ReplaceAll(pkg, "/", "-")+".test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-overlay", overlay, "-o", path, "./internal/"+pkg)
	build.Dir = n.Root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("does not compile: %w\n%s", err, out)
	}
	return path, nil
}

var (
	crash  = regexp.MustCompile(`(?m)^(panic: .*|fatal error: .*)`)
	seed   = regexp.MustCompile(`(?m)seed (\d+), `)
	nobody = regexp.MustCompile(`(?m)^testing: warning: no tests to run`)
)

// try runs some tests and reports whether one failed. The result is unknown
// if they crash, end too late, or do not exist.
func (n *Bench) try(ctx context.Context, pkg, compiled string, args ...string) (failed bool, out string, err error) {
	run := exec.CommandContext(ctx, compiled, append(args, "-test.timeout=10m")...)
	run.Dir = filepath.Join(n.Root, "internal", pkg)
	text, err := run.CombinedOutput()
	out = string(text)
	var exit *exec.ExitError
	switch {
	case nobody.MatchString(out):
		return false, out, errors.New("there is no such test")
	case crash.MatchString(out):
		return false, out, errors.New(crash.FindString(out))
	case err == nil:
		return false, out, nil
	case errors.As(err, &exit) && strings.Contains(out, "--- FAIL: "):
		return true, out, nil
	}
	return false, out, fmt.Errorf("%w\n%s", err, out)
}

// simulate returns how many schedules the simulation needs to find the mistake, or 0 if it does not find it.
func (n *Bench) simulate(ctx context.Context, compiled string, schedules int) (int, error) {
	if schedules == 0 {
		return 0, nil
	}
	failed, out, err := n.try(ctx, limiterPackage, compiled,
		"-test.run=^TestSimulation$", "-sim.first=1", "-sim.schedules="+strconv.Itoa(schedules))
	if err != nil || !failed {
		return 0, err
	}
	first := schedules // used if the output lacks the number
	for _, found := range seed.FindAllStringSubmatch(out, -1) {
		if s, err := strconv.Atoi(found[1]); err == nil {
			first = min(first, s)
		}
	}
	return first, nil
}

// Root returns the folder of the module that contains the working directory.
func Root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", err
	}
	mod := strings.TrimSpace(string(out))
	if mod == "" || mod == os.DevNull {
		return "", errors.New("run it within the module")
	}
	return filepath.Dir(mod), nil
}

// Sound checks that the tests of builds pass on the unbroken service.
func (n *Bench) Sound(ctx context.Context, builds []Build) error {
	whole := Build{Name: "nothing broken"}
	for i := range builds {
		whole.Finds = max(whole.Finds, builds[i].Finds)
		for _, test := range builds[i].Tests {
			if !slices.Contains(whole.Tests, test) {
				whole.Tests = append(whole.Tests, test)
			}
		}
	}
	r, err := n.Run(ctx, &whole)
	switch {
	case err != nil:
		return err
	case len(r.CaughtBy) > 0 || r.Schedules > 0:
		return fmt.Errorf("the unbroken service fails: %v; the simulation after %d schedules", r.CaughtBy, r.Schedules)
	}
	return nil
}
