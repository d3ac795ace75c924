package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newOverrideDelete(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Short: "End the override of an identifier or a prefix",
		Long: "End the override of an identifier or a prefix under a policy, on every instance within a second." + remote.SubjectNotes +
			"  0  ended, or it did not exist\n  2  error: standard error says why",
		Example: "  ratelimitd override delete sms-send +4915112345678",
	}
	asker := newPrefixAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := asker.about(cmd, args)
		if err != nil {
			return err
		}
		q := &remote.Question{Route: overridesRoute + "/delete", Body: about, Policy: about.Policy, Aftermath: afterOverride}
		if err := asker.Client().Tell(cmd.Context(), q); err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "deleted")
		return err
	}
	return cmd
}
