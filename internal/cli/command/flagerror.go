package command

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// flagName matches names that may be those of a flag, and are not likely to be identifiers.
var flagName = regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)

// FlagError returns err with the flag that is likely to be meant.
func FlagError(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	if errors.As(err, &invalid) && strings.Contains(invalid.GetValue(), "@") { // the text before it may be a password
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	}
	if errors.As(err, &unknown) {
		return fmt.Errorf("%w: %s", err, otherFlags(cmd, unknown))
	}
	return err
}

// PrivateFlagError is FlagError for commands with identifiers. It quotes nothing but names of flags, because an
// identifier that starts with a dash is parsed as flags.
func PrivateFlagError(cmd *cobra.Command, err error) error {
	const dash = "an identifier that starts with a dash goes after --"
	var invalid *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	var unknown *pflag.NotExistError
	switch {
	case errors.As(err, &invalid):
		return fmt.Errorf("--%s: %w", invalid.GetFlag().Name, invalid.Unwrap())
	case errors.As(err, &missing):
		return fmt.Errorf("--%s needs a value", missing.GetFlag().Name)
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" && flagName.MatchString(unknown.GetSpecifiedName()):
		return fmt.Errorf("unknown flag: --%s: %s (%s)", unknown.GetSpecifiedName(), otherFlags(cmd, unknown), dash)
	}
	return fmt.Errorf("unknown flag: %s --help lists all flags (%s)", cmd.CommandPath(), dash)
}

// otherFlags returns a hint for an unknown flag: the one that is likely to be meant, else the command that lists all.
func otherFlags(cmd *cobra.Command, unknown *pflag.NotExistError) string {
	nearest, likely := yamlfile.Nearest(unknown.GetSpecifiedName(), append(flagNames(cmd.Flags()), "help"))
	if likely && unknown.GetSpecifiedShortnames() == "" {
		return "did you mean --" + nearest + "?"
	}
	return cmd.CommandPath() + " --help lists all flags"
}

// flagNames returns the names of all flags but --help.
func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			names = append(names, f.Name)
		}
	})
	return names
}
