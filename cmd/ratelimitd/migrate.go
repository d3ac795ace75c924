package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
)

func newMigrate(environ []string) *cobra.Command {
	s := new(settings)
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Create the keyspace and its tables in Cassandra, or bring them up to date",
		Long: "Create the keyspace and its tables in Cassandra, or bring them up to date.\n\n" +
			"It takes the flags, the environment and the --config file of serve; others than these are not looked at.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.load(cmd, environ)
			if err != nil {
				return err
			}
			config, err := s.cassandraConfig(log)
			if err != nil {
				return err
			}
			if err := cassandra.Migrate(cmd.Context(), config); err != nil {
				return failure{err}
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "keyspace %s is up to date\n", config.Keyspace)
			return err
		},
	}
	s.addServeFlags(cmd.Flags())
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	s.addCommonFlags(cmd.Flags())
	s.addCassandraFlags(cmd.Flags())
	return cmd
}
