package tools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/auth"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newToken() *cobra.Command {
	var scopes, policies []string
	var file string
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a random token, and its line for the file of callers",
		Long: "Make a random token for the caller NAME. It is printed to standard output, once, and not stored.\n" +
			"The line for the --auth-file of serve only has its SHA-256. It is added to the file that --auth-file names,\n" +
			"which is made if it does not exist; without the flag it is printed to standard error.\n\n" +
			"Scopes: decide (check, take), record (record), admin (reset, overrides, explain, policies), metrics.",
		Example: `  # write the token to a file that nobody else can read, and the line to the list of callers
  (umask 077; ratelimitd token shop --scopes decide,record --auth-file callers.yaml >shop.token)`,
		Args: command.Args(1, 1, "one NAME", "it is that of the caller, such as shop"),
		RunE: func(cmd *cobra.Command, args []string) error {
			token := auth.NewToken()
			line := callerLine(args[0], auth.Digest(token), scopes, policies)
			if _, err := auth.Parse(args[0], []byte("callers:\n"+line)); err != nil {
				return oneMistake(err)
			}
			if file == "" {
				fmt.Fprint(cmd.ErrOrStderr(), line)
			} else if err := addCaller(file, line); err != nil {
				return err
			}
			_, err := fmt.Fprintln(cmd.OutOrStdout(), token)
			return err
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scopes", []string{"decide"}, "`scopes` of the caller, separated by commas: "+
		strings.Join(auth.ScopeNames(), ", "))
	cmd.Flags().StringSliceVar(&policies, "policies", nil,
		"`names` of the policies that the caller may use, separated by commas (default: any)")
	cmd.Flags().StringVar(&file, "auth-file", "", "`file` of callers to which the line is added")
	return cmd
}

// addCaller adds a caller to the file at path by one write, or makes the file. It leaves the file unchanged if the
// result would have mistakes.
func addCaller(path, line string) error {
	data, err := yamlfile.Read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && strings.TrimSpace(string(data)) == "":
		line = "callers:\n" + line
	case err != nil:
		return fmt.Errorf("--auth-file: %w", err)
	case data[len(data)-1] != '\n':
		line = "\n" + line
	}
	if _, err := auth.Parse(path, append(data, line...)); err != nil {
		return fmt.Errorf("--auth-file stays as it is, with the new caller it would not be accepted: %w", err)
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--auth-file: %w", err)
	}
	_, err = file.WriteString(line)
	if err = errors.Join(err, file.Close()); err != nil {
		return command.Fail(fmt.Errorf("--auth-file: %w", err))
	}
	return nil
}

// callerLine returns the line of a caller in the file.
func callerLine(name, digest string, scopes, policies []string) string {
	line := fmt.Sprintf("  - {name: %s, token_sha256: %s, scopes: [%s]", name, digest, strings.Join(scopes, ", "))
	if len(policies) == 0 || len(policies) == 1 && policies[0] == "any" {
		return line + ", policies: any}\n"
	}
	return line + ", policies: [" + strings.Join(policies, ", ") + "]}\n"
}

// oneMistake returns the first of a file's mistakes, without its place in the file, which does not exist.
func oneMistake(err error) error {
	if mistakes := (yamlfile.Errors)(nil); errors.As(err, &mistakes) {
		return errors.New(mistakes[0].Message)
	}
	return err
}
