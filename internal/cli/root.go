// Package cli is the command line of ratelimitd: it puts the groups of commands together and executes them.
//
// Each group of commands is a package of its own, which does not know the others: serve runs the service, ask and admin
// are its clients, and tools need no server. Their shared parts are in command, settings and remote.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/admin"
	"github.com/ratelimitd/ratelimitd/internal/cli/ask"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/serve"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/cli/tools"
)

// Run executes one command line and returns the exit code. It returns soon after ctx ends.
func Run(ctx context.Context, p *command.Process, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot(p)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	addHelpers(root)
	cmd, err := root.ExecuteContextC(ctx)
	code := command.ExitCode(err)
	switch {
	case code == command.ExitOK || errors.Is(err, command.ErrNo):
	case wantsJSON(cmd, args, p):
		slog.New(slog.NewJSONHandler(stderr, nil)).Error("ended", command.Mistakes(err)...)
	default:
		fmt.Fprintf(stderr, "ratelimitd: %v\n", err)
	}
	return code
}

// wantsJSON reports whether cmd has a log that its command line or environment wants in JSON.
func wantsJSON(cmd *cobra.Command, args []string, p *command.Process) bool {
	const name = "log-format"
	flag := cmd.Flags().Lookup(name)
	if flag == nil {
		return false
	}
	said := strings.Join(args, " ") + " "
	return flag.Value.String() == settings.LogJSON ||
		strings.Contains(said, " --"+name+"="+settings.LogJSON+" ") || strings.Contains(said, " --"+name+" "+settings.LogJSON+" ") ||
		!flag.Changed && p.Getenv(command.Variable(name)) == settings.LogJSON
}

const (
	groupOfServers = "serve"
	groupOfTools   = "tools" // also of help and completion
)

func newRoot(p *command.Process) *cobra.Command {
	root := command.Parent(&cobra.Command{
		Use:   "ratelimitd",
		Short: "Rate limits as a service, with counts in memory or in Apache Cassandra",
		Long: "Rate limits as a service, with counts in memory or in Apache Cassandra.\n\n" +
			"To try it, serve the example policies, and ask from another shell:\n\n" +
			"  ratelimitd serve\n" +
			"  ratelimitd take login 203.0.113.7",
		Version:       p.Version,
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
	})
	root.Flags().BoolP("version", "v", false, "print the version of this binary")
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetUsageTemplate(usage)
	root.SetFlagErrorFunc(command.FlagError)
	for _, group := range []struct {
		id, title string
		commands  []*cobra.Command
	}{
		{groupOfServers, "Serve:", serve.Commands(p)},
		{"ask", "Ask a server, as applications do:", ask.Commands(p)},
		{"admin", "Administer a server, or several that share their counts:", admin.Commands(p)},
		{groupOfTools, "Tools, which need no server:", tools.Commands(p)},
	} {
		root.AddGroup(&cobra.Group{ID: group.id, Title: group.title})
		for _, cmd := range group.commands {
			cmd.GroupID = group.id
			root.AddCommand(cmd)
			if group.id == groupOfServers {
				cmd.SetUsageTemplate(strings.Replace(usage, flagLines, settings.Sections(cmd.Flags()), 1))
			}
			if cmd.Name() == "policies" {
				cmd.AddCommand(tools.Policies()...)
			}
		}
	}
	root.SetHelpCommandGroupID(groupOfTools)
	root.SetCompletionCommandGroupID(groupOfTools)
	return root
}

// addHelpers adds cobra's commands help and completion to root, whose output is set. Given an unknown word they fail,
// where cobra would print a help text and exit with 0.
func addHelpers(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Short, cmd.Long = "Print the help of a command", "Print the help of a command, as --help after it does."
			cmd.Use, cmd.Run, cmd.RunE = "help [COMMAND]", nil, help
		case "completion":
			command.Parent(cmd)
			cmd.Short = "Print a script that completes commands, flags and policies in a shell"
		}
	}
}

// help prints the help of the command that args name.
func help(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	switch {
	case err != nil:
		return err
	case len(rest) > 0:
		return command.Unknown(found, rest[0])
	}
	found.InitDefaultHelpFlag() // it is among the flags that the help lists
	return found.Help()
}

// usage is cobra's template, except that parents of commands show no line of their own, and that lines of flags are
// wrapped.
const usage = `Usage:{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{else}}
  {{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}{{$all := .Commands}}{{if .Groups}}{{range $group := .Groups}}

{{.Title}}{{range $all}}{{if and (eq .GroupID $group.ID) (or .IsAvailableCommand (eq .Name "help"))}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{else}}

Commands:{{range $all}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{end}}` +
	`{{if .HasAvailableLocalFlags}}` + flagLines + `{{end}}` +
	`{{if .HasAvailableSubCommands}}

"{{.CommandPath}} COMMAND --help" says more about a command.{{end}}
`

// flagLines are the lines of flags in usage.
const flagLines = `

Flags:
{{.LocalFlags.FlagUsagesWrapped 120 | trimTrailingWhitespaces}}`
