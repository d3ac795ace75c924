package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout is as long as somebody who pressed a key waits.
const completionTimeout = time.Second

const noFiles = cobra.ShellCompDirectiveNoFileComp

// completePolicies completes POLICY by the policies in force on the server that
// the line, the environment or the file names. It completes nothing when that
// fails: a shell has no place for an error.
func (s *askSettings) completePolicies(environ []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 { // identifiers are nobody's to list
			return nil, noFiles
		}
		if _, err := configure(cmd.Flags(), environ); err != nil || s.shown.read(environ) != nil {
			return nil, noFiles
		}
		c := s.client()
		c.timeout = min(c.timeout, completionTimeout)
		inForce, err := c.policies(cmd.Context())
		if err != nil {
			return nil, noFiles
		}
		var names []cobra.Completion
		for _, p := range inForce {
			if strings.HasPrefix(p.Name, begun) {
				names = append(names, cobra.CompletionWithDesc(printable(p.Name), printable(p.Description)))
			}
		}
		return names, noFiles
	}
}
