package tools

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
)

func newPolicies() *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "policies",
		Short: "Check, print and convert files of policies",
	}, newLint(), newShow(), newImportEnvoy())
}
