package admin

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newOverrideList(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Args:  command.NoArgs,
		Short: "List the overrides in force",
		Long: "List the overrides in force by hashed key: first those without end, then by the time of their end.\n" +
			"\"ratelimitd key\" prints the key of an identifier." + remote.Notes + "  0  they are printed\n  2  error: standard error says why",
		Example: "  ratelimitd override list -o json",
	}
	asker := remote.NewAsker(p, cmd)
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var list struct {
			Overrides []overrideInForce
			Total     int
		}
		return asker.Show(cmd, overridesRoute, &list, func(out *bytes.Buffer) {
			writeOverrides(out, list.Overrides)
			if more := list.Total - len(list.Overrides); more > 0 {
				fmt.Fprintf(out, "and %d more\n", more)
			}
		})
	}
	return cmd
}
