package admin

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

func newOverride(p *command.Process) *cobra.Command {
	return command.Parent(&cobra.Command{
		Use:   "override",
		Short: "Decide an identifier otherwise than its policy says, for a while",
		Long:  "Allow or block an identifier, or give it other limits, on every instance within a second, and see what is in force.",
	}, newOverrideSet(p), newOverrideGet(p), newOverrideDelete(p), newOverrideList(p))
}

// overridesRoute is that of overrides, below /v1.
const overridesRoute = "overrides"

// overrideInForce is an override as a server answers it.
type overrideInForce struct {
	Key         string                 `json:"key"`
	Policy      string                 `json:"policy"`
	Kind        string                 `json:"kind"`
	Limits      []demand.LimitOverride `json:"limits"`
	ExpiresInMS int64                  `json:"expires_in_ms"`
	By          string                 `json:"by"`
}

// printOverride prints the override that a is. It returns false if a is none.
func printOverride(cmd *cobra.Command, asker *remote.Asker, a *remote.Answer) (printed bool, err error) {
	var o overrideInForce
	if !a.Into(&o) || o.Kind == "" {
		return false, nil
	}
	return true, asker.Print(cmd, a.Body, func(out *bytes.Buffer) { writeOverrides(out, []overrideInForce{o}) })
}

func writeOverrides(out *bytes.Buffer, overrides []overrideInForce) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "KEY\tPOLICY\tOVERRIDE\tENDS\tBY")
	for i := range overrides {
		o := &overrides[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", remote.Printable(o.Key[:min(len(o.Key), shownKeyDigits)]),
			remote.Printable(o.Policy), remote.Printable(o.what()), remote.Duration(o.ExpiresInMS), remote.Printable(o.By))
	}
	_ = table.Flush() // into a buffer
}

// shownKeyDigits are as many as the audit log has.
const shownKeyDigits = 16

// what says what o does.
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

// afterOverride is the aftermath of what changes overrides.
func afterOverride(recorded string) string {
	switch recorded {
	case remote.RecordedNo:
		return "Nothing was changed."
	case remote.RecordedUnknown:
		return "Whether it was changed is unknown: do it again, or see with override get."
	}
	return ""
}
