// Command broken compiles the builds that are broken on purpose, runs the tests that should catch each, and prints a
// table. It fails if a build is not caught.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/broken"
)

func main() {
	vital := flag.Bool("vital", false, "only the few builds that CI tries")
	only := flag.String("run", "", "only builds whose names match this regular expression")
	schedules := flag.Int("schedules", 3000, "schedules that the simulation tries for a build that it need not find; 0: none")
	flag.Parse()
	if err := run(context.Background(), *vital, *only, *schedules); err != nil {
		fmt.Fprintln(os.Stderr, "broken:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, vital bool, only string, schedules int) error {
	named, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := broken.Root(ctx)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "broken")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	bench := &broken.Bench{Root: root, Folder: folder, Schedules: schedules}
	all, err := broken.Builds()
	if err != nil {
		return err
	}
	var chosen []broken.Build
	for _, b := range all {
		if named.MatchString(b.Name) && (b.Vital || !vital) {
			chosen = append(chosen, b)
		}
	}
	return try(ctx, bench, chosen)
}

// try prints a row for each of builds. The error counts those that were not caught.
func try(ctx context.Context, bench *broken.Bench, builds []broken.Build) error {
	if err := bench.Sound(ctx, builds); err != nil {
		return err
	}
	fmt.Println("| broken build | what no longer holds | rule | caught by | by the simulation, after |")
	fmt.Println("|---|---|---|---|---|")
	wrong := 0
	for i := range builds {
		r, err := bench.Run(ctx, &builds[i])
		if err == nil {
			fmt.Println(row(&r))
			err = r.Err()
		}
		if err != nil {
			wrong++
			fmt.Fprintln(os.Stderr, "broken:", err)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d builds are not caught by all that should", wrong, len(builds))
	}
	return nil
}

func row(r *broken.Result) string {
	var tests []string
	for _, t := range r.CaughtBy {
		_, name, found := strings.Cut(t, ".")
		if !found {
			name = t
		}
		tests = append(tests, "`"+name+"`")
	}
	found := "–"
	if r.Schedules > 0 {
		found = fmt.Sprint(r.Schedules)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", r.Name, r.Broke, r.RuleName(), strings.Join(tests, ", "), found)
}
