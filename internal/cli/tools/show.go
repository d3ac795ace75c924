package tools

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func newShow() *cobra.Command {
	return &cobra.Command{
		Use:   "show [FILE]",
		Short: "Print a file of policies, or the examples, with all defaults filled in",
		Args:  command.Args(0, 1, "one FILE of policies, or none for the examples", ""),
		RunE:  show,
	}
}

func show(cmd *cobra.Command, files []string) error {
	file := ""
	if len(files) > 0 {
		file = files[0]
	}
	policies, err := policyfile.LoadOrExamples(file)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(policyfile.FormatFile(policies))
	return err
}
