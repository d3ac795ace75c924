package admin_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/admin"
	"github.com/ratelimitd/ratelimitd/internal/cli/clitest"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/serve"
)

// TestMigrateTakesServesFlags gives migrate the command line of serve: it gets as far as asking
// for Cassandra.
func TestMigrateTakesServesFlags(t *testing.T) {
	migrate := named(t, admin.Commands(new(command.Process)), "migrate")
	named(t, serve.Commands(new(command.Process)), "serve").Flags().VisitAll(func(f *pflag.Flag) {
		if migrate.Flags().Lookup(f.Name) == nil {
			t.Errorf("no --%s", f.Name)
		}
	})
	code, _, stderr := clitest.Execute(t, nil, "migrate", "--store=cassandra", "--listen=127.0.0.1:0", "--policies=p.yaml", "--namespace=n",
		"--auth-file=c.yaml", "--migrate", "--cassandra-hosts=127.0.0.9:1")
	if code != command.ExitFailure || strings.Contains(stderr, "unknown flag") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr := clitest.Execute(t, nil, "migrate", "--listem=x"); code != command.ExitUsage ||
		!strings.Contains(stderr, "did you mean --listen?") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	_, help, _ := clitest.Execute(t, nil, "migrate", "--help")
	if strings.Contains(help, "--policies") || !strings.Contains(help, "--cassandra-hosts") {
		t.Errorf("the help has what it does not look at, or lacks what it does:\n%s", help)
	}
}

func named(t *testing.T, commands []*cobra.Command, name string) *cobra.Command {
	t.Helper()
	for _, cmd := range commands {
		if cmd.Name() == name {
			return cmd
		}
	}
	t.Fatalf("there is no command %s", name)
	return nil
}
