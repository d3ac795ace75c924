package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newReset(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Forget the counts of an identifier under a policy",
		Long: "Forget the counts of an identifier under a policy, on every instance within a second." + remote.SubjectNotes +
			"  0  forgotten, or never seen\n  2  error: standard error says why",
		Example: `  # after a false alarm
  ratelimitd reset login 203.0.113.7`,
	}
	asker := remote.NewSubjectAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := asker.Subject(cmd, args)
		if err != nil {
			return err
		}
		q := &remote.Question{Route: "reset", Body: about, Policy: about.Policy, Aftermath: afterReset}
		if err := asker.Client().Tell(cmd.Context(), q); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "reset")
		return err
	}
	return cmd
}

var afterReset = remote.Aftermath{
	remote.RecordedNo:      "Nothing was forgotten.",
	remote.RecordedUnknown: "Whether the counts were forgotten is unknown: reset again.",
}
