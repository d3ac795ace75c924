package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

// Parent returns cmd as the parent of the commands below. Alone it prints its help; another argument is an error.
func Parent(cmd *cobra.Command, below ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(below...)
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Unknown(cmd, args[0])
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// Unknown is the error for a word where the name of a command below cmd belongs.
func Unknown(cmd *cobra.Command, word string) error {
	var names []string
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() || below.Name() == "help" {
			names = append(names, below.Name())
		}
	}
	cure := cmd.CommandPath() + " --help lists all commands"
	if nearest, likely := yamlfile.Nearest(word, names); likely {
		cure = "did you mean " + nearest + "?"
	} else if len(names) == 0 {
		cure = "there is none below it"
	}
	return fmt.Errorf("unknown command %q for %q: %s", word, cmd.CommandPath(), cure)
}

// NoArgs refuses arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes no arguments, but was given %q: see %s --help", cmd.Name(), args[0], cmd.CommandPath())
	}
	return nil
}

// Args returns a check that refuses fewer than least or more than most arguments; a most of 0 is no bound. The error asks
// for what, such as "one NAME", and ends with hint, which may be empty.
func Args(least, most int, what, hint string) cobra.PositionalArgs {
	if hint != "" {
		hint = "; " + hint
	}
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || most > 0 && len(args) > most {
			return fmt.Errorf("give %s, not %s%s", what, Count(len(args), "argument", "arguments"), hint)
		}
		return nil
	}
}

// Count returns n with its noun, which is one for 1 and else several.
func Count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// fromStdin stands for an argument that is read from standard input.
const fromStdin = "-"

// SubjectUse is the usage of the arguments that Subject reads.
const SubjectUse = " POLICY IDENTIFIER"

// SubjectArgs refuses other arguments than POLICY and IDENTIFIER. The error has only their number, since one of them may
// be an identifier.
func SubjectArgs(cmd *cobra.Command, args []string) error {
	return Args(2, 2, "POLICY and IDENTIFIER", "one with spaces needs quotes, and - reads the identifier from standard input")(cmd, args)
}

// Subject returns the arguments POLICY and IDENTIFIER.
func Subject(cmd *cobra.Command, args []string) (policy, identifier string, err error) {
	if identifier, err = ReadArg(cmd, args[1], "identifier"); err != nil {
		return "", "", err
	}
	if !utf8.ValidString(args[0]) || !utf8.ValidString(identifier) {
		return "", "", errors.New("POLICY and IDENTIFIER must be UTF-8, which JSON is made of")
	}
	return args[0], identifier, nil
}

// ReadArg returns given or, if that is -, the line on standard input. what is its name in errors, which do not quote it.
func ReadArg(cmd *cobra.Command, given, what string) (string, error) {
	if given != fromStdin {
		return given, nil
	}
	return readLine(cmd.Context(), cmd.InOrStdin(), what)
}

// maxInputBytes is the maximum that is read of standard input, the same as of the body of a request.
const maxInputBytes = 64 << 10

// readLine reads the only line of in, an identifier or a receipt, until it ends or ctx ends. In the latter case a read from
// a terminal, which can't be canceled, goes on until the process ends.
func readLine(ctx context.Context, in io.Reader, what string) (string, error) {
	type result struct {
		text []byte
		err  error
	}
	read := make(chan result, 1)
	go func() {
		text, err := io.ReadAll(io.LimitReader(in, maxInputBytes+1))
		read <- result{text, err}
	}()
	select {
	case r := <-read:
		if r.err != nil {
			return "", fmt.Errorf("reading the %s from standard input: %w", what, r.err)
		}
		return lineIn(r.text, what)
	case <-ctx.Done():
		return "", fmt.Errorf("interrupted while reading the %s from standard input", what)
	}
}

// lineIn returns text without the newline at its end.
func lineIn(text []byte, what string) (string, error) {
	line := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	switch {
	case len(text) > maxInputBytes:
		return "", fmt.Errorf("standard input is longer than any %s", what)
	case line == "":
		return "", fmt.Errorf("there is no %s on standard input", what)
	case strings.ContainsAny(line, "\r\n"):
		return "", fmt.Errorf("there is more than one line on standard input: give one %s, on one line", what)
	}
	return line, nil
}
