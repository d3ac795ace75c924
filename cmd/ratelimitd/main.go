// Command ratelimitd serves rate limits over HTTP and keeps the counts in memory
// or in Apache Cassandra. It also asks such a server, from a shell.
//
// This package puts the others together: it reads the settings, opens the store,
// and starts and stops everything in order. It does not know how anything is
// decided, stored or answered.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	_ "time/tzdata" // calendar windows in zones, on machines without a zone database

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}

// The exit codes. Those of check, record, take, reset and refund differ: 1 is an answer,
// and whatever failed is a 2.
const (
	exitOK      = 0
	exitFailure = 1 // something failed while the command ran
	exitUsage   = 2 // the command line, the environment or a file is wrong
	exitDenied  = 1
	exitError   = 2
)

// failure is an error that has nothing to do with how the command was called.
type failure struct{ error }

// Unwrap returns the error itself.
func (f failure) Unwrap() error { return f.error }

// run executes one command line and returns the exit code. It ends soon after ctx
// does.
func run(ctx context.Context, args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(environ)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errDenied):
		return exitDenied
	}
	if wantsJSON(cmd, args, environ) {
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("ended", mistakesIn(err)...)
	} else {
		fmt.Fprintf(stderr, "ratelimitd: %v\n", err)
	}
	if failed := (failure{}); errors.As(err, &failed) {
		return exitFailure
	}
	return exitUsage
}

// wantsJSON reports whether cmd logs, and was asked to do so in JSON, as far as its command line
// and environment could be read.
func wantsJSON(cmd *cobra.Command, args, environ []string) bool {
	const name = "log-format"
	flag := cmd.Flags().Lookup(name)
	if flag == nil {
		return false
	}
	said := strings.Join(args, " ") + " "
	return flag.Value.String() == logJSON ||
		strings.Contains(said, " --"+name+"="+logJSON+" ") || strings.Contains(said, " --"+name+" "+logJSON+" ") ||
		!flag.Changed && slices.Contains(environ, config.Variable(envPrefix, name)+"="+logJSON)
}

func newRoot(environ []string) *cobra.Command {
	root := &cobra.Command{
		Use:           "ratelimitd",
		Short:         "Rate limits as a service, with counts in memory or in Apache Cassandra",
		Version:       version(),
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		var unknown *pflag.NotExistError
		var invalid *pflag.InvalidValueError
		if errors.As(err, &invalid) && strings.Contains(invalid.GetValue(), "@") { // what stands before it may be a password
			return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
		}
		if errors.As(err, &unknown) {
			return fmt.Errorf("%w: %s", err, otherFlags(cmd, unknown))
		}
		return err
	})
	root.AddCommand(newServe(environ), newProxy(environ), newMigrate(environ), newMembers(environ),
		newPolicies(), newKey(environ), newToken(), newVersion())
	root.AddCommand(newCheck(environ), newRecord(environ), newTake(environ), newReset(environ), newRefund(environ),
		newOverride(environ), newExplain(environ))
	return root
}
