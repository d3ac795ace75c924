package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
	"github.com/ratelimitd/ratelimitd/internal/yamlfile"
)

func newPolicies(p *command.Process) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "policies",
		Short: "Check, print and convert files of policies, and keep them in the store",
	}, newApply(p), newDiff(p), newHistory(p), newRollback(p), newExport(p), newShow(p))
}

// versionsRoute is below /v1.
const versionsRoute = "policy-versions"

// policyVersion is a version of the policies in a server's answer.
type policyVersion struct {
	Version  int64
	Digest   string
	Policies int
	At       time.Time
	By       string
	Text     string // of one alone
}

// versions are the versions in a server's store, the latest first.
type versions struct{ Versions []policyVersion }

// latest returns the number of the latest version, 0 for none.
func latest(ctx context.Context, c *remote.Client) (int64, error) {
	var list versions
	if _, err := c.Get(ctx, versionsRoute, &list); err != nil || len(list.Versions) == 0 {
		return 0, err
	}
	return list.Versions[0].Version, nil
}

// readVersion returns a version with its text.
func readVersion(ctx context.Context, c *remote.Client, number int64) (v policyVersion, err error) {
	_, err = c.Get(ctx, versionsRoute+"/"+strconv.FormatInt(number, 10), &v)
	return v, err
}

// put makes text the latest version in place of have, and prints the result.
func put(cmd *cobra.Command, c *remote.Client, text []byte, have int64) error {
	header := http.Header{"Content-Type": {"application/yaml"}, "If-Match": {`"` + strconv.FormatInt(have, 10) + `"`}}
	var made policyVersion
	const unknown = "Whether they come into force is unknown: see ratelimitd policies history."
	q := &remote.Question{Aftermath: remote.Aftermath{remote.RecordedUnknown: unknown, "": unknown}}
	if err := c.Put(cmd.Context(), "policies", header, text, q, &made); err != nil {
		return err
	}
	said := fmt.Sprintf("version %d: %s, in force on every instance within a second\n", made.Version,
		command.Count(made.Policies, "policy", "policies"))
	if made.Version == have {
		said = fmt.Sprintf("version %d has the same text: nothing changed\n", have)
	}
	_, err := fmt.Fprint(cmd.OutOrStdout(), said)
	return err
}

func newApply(p *command.Process) *cobra.Command {
	var replaces int64
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Make a file of policies the latest version in a server's store",
		Long: "Make a file of policies the latest version in a server's store, in place of all policies there. All instances with that\n" +
			"store and without --policies put it in force within a second. A file with mistakes changes nothing." + remote.Notes +
			"  0  in force, or nothing changed\n  2  error: standard error says why",
		Example: "  ratelimitd policies apply policies.yaml",
		Args:    command.Args(1, 1, "one FILE of policies", ""),
	}
	asker := remote.NewAsker(p, cmd)
	command.Var(cmd.Flags(), &replaces, "replaces", "", "number",
		"number of the version that the file was made from: if another one is the latest now, nothing changes", versionNumber)
	cmd.ValidArgsFunction = nil // a file
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		text, _, err := readPolicies(files[0])
		if err == nil {
			err = asker.Load(cmd)
		}
		if err != nil {
			return err
		}
		have := replaces
		if have == 0 {
			if have, err = latest(cmd.Context(), asker.Client()); err != nil {
				return err
			}
		}
		return put(cmd, asker.Client(), text, have)
	}
	return cmd
}

// readPolicies reads a file, and returns an error if it has mistakes.
func readPolicies(path string) (text []byte, file policyfile.File, err error) {
	if text, err = yamlfile.Read(path); err != nil {
		return nil, file, fmt.Errorf("reading policies: %w", err)
	}
	file, err = policyfile.ParseFile(path, text)
	return text, file, err
}

func newRollback(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollback NUMBER",
		Short: "Make the policies of an earlier version the latest version in a server's store",
		Long: "Make the policies of an earlier version the latest version in a server's store, with a new number." + remote.Notes +
			"  0  in force, or nothing changed\n  2  error: standard error says why",
		Example: "  ratelimitd policies rollback 7",
		Args:    command.Args(1, 1, "one NUMBER of a version", ""),
	}
	asker := remote.NewAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		number, err := versionNumber(args[0])
		if err == nil {
			err = asker.Load(cmd)
		}
		if err != nil {
			return err
		}
		have, err := latest(cmd.Context(), asker.Client())
		if err != nil {
			return err
		}
		v, err := readVersion(cmd.Context(), asker.Client(), number)
		if err != nil {
			return err
		}
		return put(cmd, asker.Client(), []byte(v.Text), have)
	}
	return cmd
}

var errNoVersions = errors.New("the server's store has no version of the policies: ratelimitd policies apply makes the first")

func newExport(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Print the latest version in a server's store, as it was applied",
		Long: "Print the latest version in a server's store, as it was applied." + remote.Notes +
			"  0  it is printed\n  2  error: standard error says why",
		Example: "  ratelimitd policies export > policies.yaml",
		Args:    command.NoArgs,
	}
	asker := remote.NewAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		have, err := latest(cmd.Context(), asker.Client())
		switch {
		case err != nil:
			return err
		case have == 0:
			return errNoVersions
		}
		return printVersion(cmd, asker, have)
	}
	return cmd
}

// printVersion prints the text of a version.
func printVersion(cmd *cobra.Command, asker *remote.Asker, number int64) error {
	v, err := readVersion(cmd.Context(), asker.Client(), number)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), v.Text)
	return err
}

func newHistory(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "history",
		Short: "List the versions that a server's store keeps, the latest first",
		Long: "List the versions that a server's store keeps, the latest first: the last 100." + remote.Notes +
			"  0  they are printed\n  2  error: standard error says why",
		Example: "  ratelimitd policies history -o json",
		Args:    command.NoArgs,
	}
	asker := remote.NewAsker(p, cmd)
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var list versions
		return asker.Show(cmd, versionsRoute, &list, func(out *bytes.Buffer) { writeHistory(out, list.Versions) })
	}
	return cmd
}

// digestDigits are enough to tell versions apart by eye.
const digestDigits = 12

func writeHistory(out *bytes.Buffer, all []policyVersion) {
	if len(all) == 0 {
		out.WriteString("no versions\n")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "version\tmade at\tby\tpolicies\tdigest")
	for i := range all {
		v := &all[i]
		fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%s\n", v.Version, v.At.UTC().Format(time.RFC3339), remote.Printable(v.By), v.Policies,
			remote.Printable(v.Digest[:min(len(v.Digest), digestDigits)]))
	}
	_ = table.Flush() // into memory
}

func newDiff(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "diff FILE",
		Short: "Print how a file of policies differs from the latest version in a server's store",
		Long: "Print how a file of policies differs from the latest version in a server's store: + for added policies, - for removed\n" +
			"ones, ~ for changed ones with their changes." + remote.Notes +
			"  0  no difference\n  1  they differ\n  2  error: standard error says why",
		Example: "  ratelimitd policies diff policies.yaml",
		Args:    command.Args(1, 1, "one FILE of policies", ""),
	}
	asker := remote.NewAsker(p, cmd)
	cmd.ValidArgsFunction = nil // a file
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		_, file, err := readPolicies(files[0])
		if err == nil {
			err = asker.Load(cmd)
		}
		if err != nil {
			return err
		}
		before, err := latestPolicies(cmd.Context(), asker.Client())
		if err != nil {
			return err
		}
		return diff(cmd, before, file)
	}
	return cmd
}

// latestPolicies returns the policies of the latest version, none if there is no version.
func latestPolicies(ctx context.Context, c *remote.Client) (file policyfile.File, err error) {
	have, err := latest(ctx, c)
	if err != nil || have == 0 {
		return file, err
	}
	v, err := readVersion(ctx, c, have)
	if err != nil {
		return file, err
	}
	return policyfile.ParseFile(fmt.Sprintf("version-%d", v.Version), []byte(v.Text))
}

func diff(cmd *cobra.Command, before, after policyfile.File) error {
	d := policyfile.DiffOfFiles(before, after)
	var out bytes.Buffer
	for _, kind := range []struct {
		mark  string
		lines []string
	}{{"+", d.Added}, {"-", d.Removed}, {"~", d.Changed}} {
		for _, line := range kind.lines {
			fmt.Fprintln(&out, kind.mark, line)
		}
	}
	if _, err := cmd.OutOrStdout().Write(out.Bytes()); err != nil || out.Len() == 0 {
		return err
	}
	return command.ErrNo
}
