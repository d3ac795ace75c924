package tools

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/envoyimport"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newImportEnvoy() *cobra.Command {
	var count string
	cmd := &cobra.Command{
		Use:   "import-envoy FILE...",
		Short: "Convert the configuration of envoyproxy/ratelimit to a file of policies, and print it",
		Long: "Print a file of policies by which an Envoy gets the same answers as from envoyproxy/ratelimit.\n\n" +
			"Each FILE has one domain, as there. Members that only change metrics or metadata are left out, with a warning on\n" +
			"standard error that names the line. If answers would change, that is a mistake, and nothing is printed.",
		Args: command.Args(1, 0, "at least one FILE of envoyproxy/ratelimit", ""),
		RunE: func(cmd *cobra.Command, files []string) error {
			return importEnvoy(files, policy.CountMode(count), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	command.Var(cmd.Flags(), &count, "count", string(policy.CountAll), "attempts",
		"attempts that use quota: all, as there, or admitted, which costs less and decides alike unless a request has several hits",
		command.OneOf(string(policy.CountAll), string(policy.CountAdmitted)))
	return cmd
}

func importEnvoy(files []string, count policy.CountMode, stdout, stderr io.Writer) error {
	var sources []envoyimport.Source
	for _, file := range files {
		data, err := yamlfile.Read(file)
		if err != nil {
			return err
		}
		sources = append(sources, envoyimport.Source{Name: file, Data: data})
	}
	made, warnings, err := envoyimport.Convert(sources, envoyimport.Options{Count: count})
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintf(stderr, "warning: %v\n", w)
	}
	header := "# Made of " + strings.Join(files, ", ") + " by ratelimitd policies import-envoy.\n" + headersHint
	_, err = io.WriteString(stdout, header+string(policyfile.FormatFile(made)))
	return err
}

// headersHint is about a setting of envoyproxy/ratelimit that is in no file.
const headersHint = `# Where LIMIT_RESPONSE_HEADERS_ENABLED was true, add to envoy:
#   response_headers: {limit: RateLimit-Limit, remaining: RateLimit-Remaining, reset: RateLimit-Reset}
`
