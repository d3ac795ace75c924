// Package command has the common parts of all commands: values of flags, settings from the environment and files,
// arguments, and exit codes.
//
// It knows none of the commands.
package command

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/config"
	"github.com/ratelimitd/ratelimitd/internal/proxy"
)

// Process is the process in which a command runs, apart from its command line, standard input and output, and context,
// which a signal ends.
type Process struct {
	Version string           // of the binary, in one line
	Environ []string         // as from os.Environ
	Now     func() time.Time // the clock of counts, measurements and answers
}

// Getenv returns the value of an environment variable, empty if it is not set.
func (p *Process) Getenv(name string) (value string) {
	for _, entry := range p.Environ {
		if text, found := strings.CutPrefix(entry, name+"="); found {
			value = text
		}
	}
	return value
}

// variables is the prefix of the environment variables of all flags.
const variables = "RATELIMITD_"

// Secrets are no flags, because every user of the machine can read command lines.
const (
	PasswordVariable = variables + "CASSANDRA_PASSWORD"
	TokenVariable    = variables + "TOKEN"         // the caller's token
	EventsVariable   = variables + "EVENTS_SECRET" // the secret that signs events
)

// Variable returns the name of the environment variable of a flag.
func Variable(flag string) string { return config.Variable(variables, flag) }

// configFlag names the file of settings, which the commands with this flag share, as they do the environment.
const configFlag = "config"

// AddConfig adds the flag --config.
func AddConfig(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, configFlag, "", "YAML `file` that sets any other flag by its name")
}

// Configure sets the flags that the command line of cmd did not, from the environment and from the file of --config.
// Settings of other commands are ignored. The error joins all mistakes; warnings name variables that no command reads.
func (p *Process) Configure(cmd *cobra.Command) (warnings []string, err error) {
	return config.Apply(cmd.Flags(), &config.Options{
		Prefix: variables, Environ: p.Environ, File: configFlag,
		AlsoKnown: sharedFlags(cmd.Root()), AlsoKeys: []string{proxy.Key},
		AlsoVariables: []string{PasswordVariable, TokenVariable, EventsVariable},
	})
}

// sharedFlags returns the names of the flags of cmd and of all commands below it that have --config.
func sharedFlags(cmd *cobra.Command) (names []string) {
	if cmd.Flags().Lookup(configFlag) != nil {
		names = flagNames(cmd.Flags())
	}
	for _, below := range cmd.Commands() {
		names = append(names, sharedFlags(below)...)
	}
	return names
}

// The exit codes. For commands that ask a server, 1 is an answer, and 2 any failure.
const (
	ExitOK      = 0
	ExitFailure = 1 // something failed while the command ran
	ExitUsage   = 2 // the command line, the environment or a file is wrong
	ExitNo      = 1
	ExitError   = 2
)

// ErrNo is the error of a command that has printed a server's answer, which is no.
var ErrNo = errors.New("the answer is no")

// Failure is an error that is not a mistake in the command line, the environment or a file.
type Failure struct{ error }

// Fail returns err as a Failure.
func Fail(err error) Failure { return Failure{err} }

// Unwrap returns the error itself.
func (f Failure) Unwrap() error { return f.error }

// ExitCode returns the exit code of a command that ended with err.
func ExitCode(err error) int {
	switch failed := (Failure{}); {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrNo):
		return ExitNo
	case errors.As(err, &failed):
		return ExitFailure
	}
	return ExitUsage
}
