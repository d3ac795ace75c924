package admin

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newExplain(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Say why an identifier would be allowed or denied now",
		Long: "Say why an identifier would be allowed or denied now, with the count of each limit, and the effect of an override, a\n" +
			"block, a reset and the policy's mode. Nothing is recorded." + remote.SubjectNotes +
			"  0  explained\n  2  error: standard error says why",
		Example: "  ratelimitd explain sms-send +4915112345678",
	}
	asker := remote.NewSubjectAsker(p, cmd)
	var limit int64
	remote.AddLimit(cmd, &limit)
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := asker.Subject(cmd, args)
		if err != nil {
			return err
		}
		about.BringLimit(cmd, &limit)
		c, q := asker.Client(), &remote.Question{Route: "explain", Body: about, Policy: about.Policy}
		a, err := c.Ask(cmd.Context(), q)
		if err != nil {
			return err
		}
		var x explanation
		if !a.Into(&x) || x.Because == "" {
			return c.Refused(cmd.Context(), q, a)
		}
		return asker.Print(cmd, a.Body, x.write)
	}
	return cmd
}

// explanation is a server's answer to explain.
type explanation struct {
	Allowed  bool             `json:"allowed"`
	Because  string           `json:"because"`
	Detail   string           `json:"detail"`
	Key      string           `json:"key"`
	Mode     string           `json:"mode"`
	Limits   []remote.Limit   `json:"limits"`
	Degraded bool             `json:"degraded"`
	Override *overrideInForce `json:"override"`
	Block    *struct {
		Until   string `json:"until"`
		Strikes int    `json:"strikes"`
	} `json:"block"`
	ResetAt *string       `json:"reset_at"`
	Policy  string        `json:"policy"`
	Derived []explanation `json:"derived"`
}

// write writes a line with the verdict, a row for each limit, and everything else that affects the decision.
func (x *explanation) write(out *bytes.Buffer) {
	verdict := "denied"
	if x.Allowed {
		verdict = "allowed"
	}
	fmt.Fprintf(out, "%s: %s\n", verdict, remote.Printable(x.Detail))
	if len(x.Limits) > 0 {
		remote.WriteLimits(out, x.Limits, false)
	}
	x.writeRest(out)
}

func (x *explanation) writeRest(out *bytes.Buffer) {
	if o := x.Override; o != nil {
		lasts := "without end"
		if o.ExpiresInMS != nil {
			lasts = "for another " + o.ends()
		}
		what := o.what()
		if o.Prefix != "" {
			what += " for " + o.Prefix + "…"
		}
		fmt.Fprintf(out, "override: %s, %s, by %s\n", remote.Printable(what), lasts, remote.Printable(o.By))
	}
	if x.Block != nil {
		fmt.Fprintf(out, "block: until %s, number %d in a row\n", remote.Printable(x.Block.Until), x.Block.Strikes)
	}
	if x.ResetAt != nil {
		fmt.Fprintf(out, "reset: counts from before %s are forgotten\n", remote.Printable(*x.ResetAt))
	}
	if x.Mode != "enforce" {
		fmt.Fprintf(out, "mode: %s\n", remote.Printable(x.Mode))
	}
	fmt.Fprintf(out, "key: %s\n", remote.Printable(x.Key))
	for i := range x.Derived {
		fmt.Fprintf(out, "\nderived, under %s, ", remote.Printable(x.Derived[i].Policy))
		x.Derived[i].write(out)
	}
}
