package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newPolicies() *cobra.Command {
	policies := &cobra.Command{
		Use:   "policies",
		Short: "Check and print files of policies",
		Args:  cobra.NoArgs, // else a misspelt command would be answered by the help, and with 0
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	policies.AddCommand(
		&cobra.Command{
			Use:   "lint FILE...",
			Short: "Print every mistake in files of policies, and limits that can never deny; exit with 2 if there is a mistake",
			Args:  cobra.MinimumNArgs(1),
			RunE:  lint,
		},
		&cobra.Command{
			Use:   "show [FILE]",
			Short: "Print a file of policies, or the examples, with all defaults filled in",
			Args:  cobra.MaximumNArgs(1),
			RunE:  show,
		},
		newImportEnvoy(),
	)
	return policies
}

// lint prints one line for each mistake in files, and one for each file without.
func lint(cmd *cobra.Command, files []string) error {
	out, wrong := cmd.OutOrStdout(), 0
	for _, file := range files {
		policies, err := policyfile.Load(file)
		var mistakes yamlfile.Errors
		switch {
		case err == nil:
			for i := range policies {
				for _, idle := range policyfile.Idle(&policies[i]) {
					fmt.Fprintf(out, "%s: warning: %s\n", file, idle)
				}
			}
			fmt.Fprintf(out, "%s: no mistakes in %s\n", file, count(len(policies), "policy", "policies"))
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
		return fmt.Errorf("mistakes in %s", count(wrong, "file", "files"))
	}
	return nil
}

func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

func show(cmd *cobra.Command, files []string) error {
	file := ""
	if len(files) > 0 {
		file = files[0]
	}
	policies, err := loadPolicies(file)
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(policyfile.FormatFile(policies))
	return err
}

// loadPolicies reads file; the examples when it is empty.
func loadPolicies(file string) (policyfile.File, error) {
	if file == "" {
		policies, err := policyfile.Default()
		return policyfile.File{Policies: policies}, err
	}
	return policyfile.LoadFile(file)
}
