package settings_test

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
)

// TestEveryFlagHasASection of the help, and is there once.
func TestEveryFlagHasASection(t *testing.T) {
	s, flags := new(settings.Settings), pflag.NewFlagSet("", pflag.ContinueOnError)
	s.AddCommonFlags(flags)
	s.AddServeFlags(flags)
	s.AddCassandraFlags(flags)
	s.AddProxyFlags(flags)
	help := settings.Sections(flags)
	flags.VisitAll(func(f *pflag.Flag) {
		if n := strings.Count(help, "\n      --"+f.Name+" "); n != 1 {
			t.Errorf("the help has --%s %d times", f.Name, n)
		}
	})
	if _, others, found := strings.Cut(help, "\n\nOthers:\n"); found {
		t.Errorf("give these a section in sections.go:\n%s", others)
	}
	flags.Bool("new", false, "is in no section")
	if help := settings.Sections(flags); !strings.Contains(help, "\n\nOthers:\n      --new   is in no section") {
		t.Errorf("a flag without a section is left out of the help:\n%s", help)
	}
}
