package admin

import (
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func newShow(p *command.Process) *cobra.Command {
	var version int64
	cmd := &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print a file of policies, or the examples, with all defaults filled in; or a version of a server's store",
		Long: "Print a file of policies, or the examples, with all defaults filled in. With --version, ask a server, and print that\n" +
			"version of its store as it was applied." + remote.Notes + "  0  they are printed\n  2  error: standard error says why",
		Args: command.Args(0, 1, "one FILE of policies, or none for the examples", ""),
	}
	asker := remote.NewAsker(p, cmd)
	command.Var(cmd.Flags(), &version, "version", "", "number", "number of the version to print", versionNumber)
	cmd.ValidArgsFunction = nil // a file
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		switch {
		case !cmd.Flags().Changed("version"): // no server is asked
			return show(cmd, files)
		case len(files) > 0:
			return errors.New("give a FILE or --version, not both")
		}
		if err := asker.Load(cmd); err != nil {
			return err
		}
		return printVersion(cmd, asker, version)
	}
	return cmd
}

// versionNumber reads the number of a version.
func versionNumber(text string) (int64, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil || number < 1 {
		return 0, errors.New("use the number of a version, such as 7: ratelimitd policies history lists them")
	}
	return number, nil
}

func show(cmd *cobra.Command, files []string) error {
	file := ""
	if len(files) > 0 {
		file = files[0]
	}
	policies, err := policyfile.LoadOrExamples(file)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(policyfile.FormatFile(policies))
	return err
}
