package serve

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

// changes are the differences that a reload made. At the start they are nil.
type changes policyfile.Diff

// attrs returns c for a log line, with at most command.MaxLogged of each kind.
func (c *changes) attrs() []slog.Attr {
	var attrs []slog.Attr
	for _, kind := range []struct {
		name  string
		names []string
	}{{"added", c.Added}, {"removed", c.Removed}, {"changed", c.Changed}} {
		if len(kind.names) == 0 {
			continue
		}
		shown := kind.names[:min(len(kind.names), command.MaxLogged)]
		if more := len(kind.names) - len(shown); more > 0 {
			shown = append(slices.Clone(shown), fmt.Sprintf("and %d more", more))
		}
		attrs = append(attrs, slog.Any(kind.name, command.Sentences(shown)))
	}
	if len(attrs) == 0 {
		attrs = append(attrs, slog.Bool("unchanged", true))
	}
	return attrs
}

// policyChanges returns the changes from the policies before a reload to those after it.
func policyChanges(before, after []*policy.Policy) *changes {
	return (*changes)(policyfile.DiffOf(before, after))
}
