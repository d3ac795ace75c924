package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestMigrateTakesServesFlags gives migrate the command line of serve: it gets as far as asking
// for Cassandra.
func TestMigrateTakesServesFlags(t *testing.T) {
	serve, migrate := newServe(nil).Flags(), newMigrate(nil).Flags()
	serve.VisitAll(func(f *pflag.Flag) {
		if migrate.Lookup(f.Name) == nil {
			t.Errorf("no --%s", f.Name)
		}
	})
	code, _, stderr := execute(t, nil, "migrate", "--store=cassandra", "--listen=127.0.0.1:0", "--policies=p.yaml", "--namespace=n",
		"--auth-file=c.yaml", "--migrate", "--cassandra-hosts=127.0.0.9:1")
	if code != exitFailure || strings.Contains(stderr, "unknown flag") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if code, _, stderr := execute(t, nil, "migrate", "--listem=x"); code != exitUsage || !strings.Contains(stderr, "did you mean --listen?") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	_, help, _ := execute(t, nil, "migrate", "--help")
	if strings.Contains(help, "--policies") || !strings.Contains(help, "--cassandra-hosts") {
		t.Errorf("the help has what it does not look at, or lacks what it does:\n%s", help)
	}
}
