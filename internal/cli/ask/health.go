package ask

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newHealth(p *command.Process) *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask whether a server is alive, or ready to decide",
		Long: "Ask whether a server is alive, whatever the state of its store. It needs no shell and no curl, which suits the\n" +
			"HEALTHCHECK of a container.\n\n" +
			"With --ready it is healthy only if its store answers and its clock is right." + remote.Notes + `  0  healthy
  1  not healthy, or no answer: standard error says why
  2  the command line, the environment or a file is wrong`,
		Example: `  # wait for an instance before the next one is stopped
  until ratelimitd health --ready --server http://10.0.0.7:8080; do sleep 1; done`,
		Args: command.NoArgs,
	}
	asker := remote.NewAsker(p, cmd)
	cmd.Flags().BoolVar(&ready, "ready", false, "also ask whether the server can decide")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		status, warnings, err := asker.Client().Health(cmd.Context(), ready)
		if err != nil {
			return command.Fail(err)
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), remote.Printable(status)); err != nil {
			return command.Fail(err)
		}
		for _, w := range warnings {
			fmt.Fprintln(cmd.ErrOrStderr(), "ratelimitd: "+remote.Printable(w))
		}
		return nil
	}
	return cmd
}
