package tools

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newLint() *cobra.Command {
	return &cobra.Command{
		Use:   "lint FILE...",
		Short: "Print every mistake in files of policies, and warnings; exit with 2 if there is a mistake",
		Args:  command.Args(1, 0, "at least one FILE of policies", ""),
		RunE:  lint,
	}
}

// lint prints one line for each mistake in files, and one for each file without.
func lint(cmd *cobra.Command, files []string) error {
	out, wrong := cmd.OutOrStdout(), 0
	for _, file := range files {
		read, err := policyfile.LoadFile(file)
		var mistakes yamlfile.Errors
		switch {
		case err == nil:
			for _, warning := range policyfile.Warnings(&read) {
				fmt.Fprintf(out, "%s: warning: %s\n", file, warning)
			}
			fmt.Fprintf(out, "%s: no mistakes in %s\n", file, command.Count(len(read.Policies), "policy", "policies"))
			continue
		case errors.As(err, &mistakes):
			for _, m := range mistakes {
				fmt.Fprintln(out, m.Error())
			}
		default:
			fmt.Fprintln(out, err.Error())
		}
		wrong++
	}
	if wrong > 0 {
		return fmt.Errorf("mistakes in %s", command.Count(wrong, "file", "files"))
	}
	return nil
}
