// Package tools has the commands that need no server: for files of policies, tokens, keys, logs, and the version.
package tools

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Commands returns the commands of this package.
func Commands(p *command.Process) []*cobra.Command {
	return []*cobra.Command{newToken(), newKey(p), newSimulate(), newVersion(p)}
}
