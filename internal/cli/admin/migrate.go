package admin

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
)

func newMigrate(p *command.Process) *cobra.Command {
	s := new(settings.Settings)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the keyspace and its tables in Cassandra, or bring them up to date",
		Long: "Create the keyspace and its tables in Cassandra, or bring them up to date.\n\n" +
			"It takes the flags, the environment and the --config file of serve; it only uses these flags.",
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
			if err := cassandra.Migrate(cmd.Context(), config); err != nil {
				return command.Fail(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyspace %s is up to date\n", config.Keyspace)
			return err
		},
	}
	s.AddServeFlags(cmd.Flags())
	settings.Hide(cmd.Flags())
	s.AddCommonFlags(cmd.Flags())
	s.AddCassandraFlags(cmd.Flags())
	return cmd
}
