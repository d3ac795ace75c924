// Package admin has the commands of operators: counts of an identifier, overrides, the policies in the store, and the
// cluster that instances share.
//
// reset, explain, override, policies, shadow and top call a server; migrate and members connect to Cassandra.
package admin

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Commands returns the commands of this package.
func Commands(p *command.Process) []*cobra.Command {
	return []*cobra.Command{newExplain(p), newReset(p), newOverride(p), newTop(p), newShadow(p), newMigrate(p), newMembers(p), newPolicies(p)}
}
