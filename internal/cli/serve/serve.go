// Package serve holds the commands that are a service: serve, and proxy, which is serve and more.
//
// service.go shows how a service starts and stops; the other files are its parts. The package does not know how
// decisions are made, stored or answered.
package serve

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
)

// Commands returns the commands of this package.
func Commands(p *command.Process) []*cobra.Command {
	return []*cobra.Command{newServe(p), newProxy(p)}
}

func newServe(p *command.Process) *cobra.Command {
	s := new(settings.Settings)
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve rate limits over HTTP",
		Long: "Serve rate limits over HTTP, until SIGTERM or SIGINT.\n\n" +
			"SIGHUP, or a change of a file, reloads the policies, the callers (--auth-file) and the\n" +
			"certificates of TLS. A file with mistakes is refused and logged, and changes nothing.\n\n" +
			"An address that other machines reach needs --auth-file or --tls-client-ca-file, or else\n" +
			"--insecure-no-auth.\n\n" +
			"Every flag has an environment variable (--log-level: RATELIMITD_LOG_LEVEL) and a key in the\n" +
			"--config file (log-level:). A flag beats the environment, which beats the file.",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.Load(cmd, p)
			if err != nil {
				return err
			}
			return serve(cmd, p, s, log)
		},
	}
	s.AddCommonFlags(cmd.Flags())
	s.AddServeFlags(cmd.Flags())
	s.AddCassandraFlags(cmd.Flags())
	return cmd
}
