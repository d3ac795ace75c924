package admin

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
)

func newMembers(p *command.Process) *cobra.Command {
	s := new(settings.Settings)
	cmd := &cobra.Command{
		Use:   "members",
		Short: "Show which instances decide together, and how much each owns",
		Long: "Show which instances decide together, and the share of all keys that each owns, as stored in Cassandra.\n\n" +
			"ALIVE is true if a member gave a sign of life within the last ten seconds. IN is false once a member is set out:\n" +
			"it then decides nothing more, and the next view of the members leaves it out.",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.Load(cmd, p)
			if err != nil {
				return err
			}
			config, err := s.CassandraConfig(log, p.Now)
			if err != nil {
				return err
			}
			store, err := cassandra.Open(cmd.Context(), config)
			if err != nil {
				return command.Fail(err)
			}
			defer store.Close()
			return printMembers(cmd.Context(), store.Members(s.Namespace), cmd.OutOrStdout())
		},
	}
	s.AddCommonFlags(cmd.Flags())
	s.AddCassandraFlags(cmd.Flags())
	cmd.Flags().StringVar(&s.Namespace, "namespace", "default", "`namespace` of the members")
	return cmd
}

// whyAll has the reasons why all members own keys, instead of one.
var whyAll = map[cluster.Why]string{
	cluster.WhyAsked:  ": an instance was started with --owners all",
	cluster.WhyCPU:    ": one owner alone used over half of its processors",
	cluster.WhyMemory: ": one owner alone remembered over four fifths of --max-keys",
	cluster.WhyLate:   ": one owner alone answered the others late",
	cluster.WhySilent: ": the one owner gave no sign of life",
}

func printMembers(ctx context.Context, store cluster.Store, out io.Writer) error {
	list, err := cluster.List(ctx, store)
	if err != nil {
		return command.Fail(err)
	}
	if list.View.Number == 0 {
		_, err = fmt.Fprintln(out, "no instance has joined yet")
		return err
	}
	fmt.Fprintf(out, "view %d, mode %s%s\n", list.View.Number, list.View.Mode, whyAll[list.View.All])
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "MEMBER\tADDRESS\tALIVE\tIN\tCONFIRMED\tOWNS")
	for i, m := range list.Members {
		address := cmp.Or(m.Address, "-")
		owns := fmt.Sprintf("%.1f %%", 100*float64(list.Shares[i])/cluster.Slots)
		if list.View.Mode == cluster.Shared {
			owns = "shared"
		}
		fmt.Fprintf(table, "%s\t%s\t%t\t%t\t%d\t%s\n", m.ID, address, m.Alive, m.In, m.Confirmed, owns)
	}
	return table.Flush()
}
