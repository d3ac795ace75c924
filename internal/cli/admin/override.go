package admin

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func newOverride(p *command.Process) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "override",
		Short: "Decide an identifier otherwise than by its policy",
		Long: "Allow or block an identifier, or all with a prefix, or give them other limits, on every instance within a second,\n" +
			"and show the overrides in force.",
	}, newOverrideSet(p), newOverrideGet(p), newOverrideDelete(p), newOverrideList(p))
}

// prefixAsker is an Asker of commands about POLICY and IDENTIFIER or, with --prefix, all that begin with it.
type prefixAsker struct {
	*remote.Asker
	prefix string
}

func newPrefixAsker(p *command.Process, cmd *cobra.Command) *prefixAsker {
	a := &prefixAsker{Asker: remote.NewSubjectAsker(p, cmd)}
	cmd.Flags().StringVar(&a.prefix, "prefix", "", "in place of IDENTIFIER, the `text` that canonical identifiers begin with, such as +4915")
	remote.NoFiles(cmd, "prefix")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("prefix") {
			return command.Args(1, 1, "POLICY alone", "--prefix is in place of IDENTIFIER")(cmd, args)
		}
		return command.SubjectArgs(cmd, args)
	}
	return a
}

// overridden is the identifier or the prefix of a request about an override.
type overridden struct {
	Policy     string `json:"policy"`
	Identifier string `json:"identifier,omitempty"`
	Prefix     string `json:"prefix,omitempty"`
}

// about loads the flags, and returns the identifier or the prefix that the arguments name.
func (a *prefixAsker) about(cmd *cobra.Command, args []string) (overridden, error) {
	if cmd.Flags().Changed("prefix") {
		if a.prefix == "" || !utf8.ValidString(a.prefix) {
			return overridden{}, errors.New("--prefix: give 1 to 64 bytes of UTF-8")
		}
		return overridden{Policy: args[0], Prefix: a.prefix}, a.Load(cmd)
	}
	about, err := a.Subject(cmd, args)
	return overridden{Policy: about.Policy, Identifier: about.Identifier}, err
}

// overridesRoute is the route of overrides, below /v1.
const overridesRoute = "overrides"

// overrideInForce is an override as a server answers it.
type overrideInForce struct {
	Key         string                 `json:"key"`    // empty: it is of a prefix
	Prefix      string                 `json:"prefix"` // empty: it is of an identifier
	Policy      string                 `json:"policy"`
	Kind        string                 `json:"kind"`
	Limits      []demand.LimitOverride `json:"limits"`
	ExpiresInMS *int64                 `json:"expires_in_ms"` // nil: it has no end
	By          string                 `json:"by"`
}

// print prints the override in answer, which is that to q.
func (a *prefixAsker) print(cmd *cobra.Command, q *remote.Question, answer *remote.Answer) error {
	var o overrideInForce
	if !answer.Into(&o) || o.Kind == "" {
		return a.Client().Refused(cmd.Context(), q, answer)
	}
	return a.Print(cmd, answer.Body, func(out *bytes.Buffer) { writeOverrides(out, []overrideInForce{o}) })
}

func writeOverrides(out *bytes.Buffer, overrides []overrideInForce) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tPOLICY\tOVERRIDE\tENDS\tBY")
	for i := range overrides {
		o := &overrides[i]
		whose := o.Key[:min(len(o.Key), shownKeyDigits)]
		if o.Prefix != "" {
			whose = o.Prefix + "…"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", remote.Printable(whose),
			remote.Printable(o.Policy), remote.Printable(o.what()), o.ends(), remote.Printable(o.By))
	}
	_ = table.Flush() // into a buffer
}

// shownKeyDigits is the number of digits of a key in tables, the same as in the audit log.
const shownKeyDigits = 16

// what describes the effect of o.
func (o *overrideInForce) what() string {
	if o.Kind != string(policy.OverrideLimits) {
		return o.Kind
	}
	var limits []string
	for _, l := range o.Limits {
		text := l.Name + "=" + strconv.FormatInt(l.Limit, 10)
		if l.Burst > 0 {
			text += "/" + strconv.FormatInt(l.Burst, 10)
		}
		limits = append(limits, text)
	}
	return strings.Join(limits, " ")
}

// ends returns the time until o ends.
func (o *overrideInForce) ends() string {
	if o.ExpiresInMS == nil {
		return "never"
	}
	return remote.Duration(*o.ExpiresInMS)
}

// afterOverride is the aftermath of requests that change overrides.
var afterOverride = remote.Aftermath{
	remote.RecordedNo:      "Nothing was changed.",
	remote.RecordedUnknown: "Whether it was changed is unknown: try again, or look by override get.",
}
