// Package tools holds the commands that ask nobody: files of policies, tokens, keys, the version.
package tools

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

// Commands returns the commands of this package.
func Commands(p *command.Process) []*cobra.Command {
	return []*cobra.Command{newToken(), newKey(p), newSimulate(), newVersion(p)}
}
