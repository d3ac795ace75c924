package tools

import "github.com/spf13/cobra"

// Policies returns the commands below "policies" that need no server.
func Policies() []*cobra.Command { return []*cobra.Command{newLint(), newImportEnvoy()} }
