package remote

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout is the longest time that completion waits for the server.
const completionTimeout = time.Second

// completePolicies completes POLICY by the policies in force on the server. After a failure it completes nothing, since
// a shell has no place for an error.
func (a *Asker) completePolicies(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const noFiles = cobra.ShellCompDirectiveNoFileComp
	if len(args) > 0 { // identifiers are not listed
		return nil, noFiles
	}
	if _, err := a.process.Configure(cmd); err != nil || a.shown.read(a.process, nil) != nil {
		return nil, noFiles
	}
	c := a.Client()
	c.timeout = min(c.timeout, completionTimeout)
	inForce, err := c.policies(cmd.Context())
	if err != nil {
		return nil, noFiles
	}
	var names []cobra.Completion
	for _, p := range inForce {
		if strings.HasPrefix(p.Name, begun) {
			names = append(names, cobra.CompletionWithDesc(Printable(p.Name), Printable(p.Description)))
		}
	}
	return names, noFiles
}
