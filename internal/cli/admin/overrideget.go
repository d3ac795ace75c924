package admin

import (
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newOverrideGet(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get",
		Short: "Print the override of an identifier or a prefix",
		Long: "Print the override by which an identifier is decided under a policy: its own, or that of its longest prefix.\n" +
			"With --prefix, print the override of that prefix." + remote.SubjectNotes +
			"  0  it is printed\n  1  there is none\n  2  error: standard error says why",
		Example: "  ratelimitd override get sms-send +4915112345678",
	}
	asker := newPrefixAsker(p, cmd)
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := asker.about(cmd, args)
		if err != nil {
			return err
		}
		q := &remote.Question{Route: overridesRoute + "/get", Body: about, Policy: about.Policy}
		answer, err := asker.Client().Ask(cmd.Context(), q)
		if err != nil {
			return err
		}
		if p := answer.Problem(); p != nil && answer.Status == http.StatusNotFound && p.Field == "" {
			fmt.Fprintln(cmd.OutOrStdout(), "no override")
			return command.ErrNo
		}
		return asker.print(cmd, q, answer)
	}
	return cmd
}
