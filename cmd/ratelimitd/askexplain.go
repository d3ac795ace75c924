package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

const verbExplain = "explain"

// explanation is what a server answers to explain.
type explanation struct {
	Allowed bool   `json:"allowed"`
	Because string `json:"because"`
	Detail  string `json:"detail"`
	Key     string `json:"key"`
	Mode    string `json:"mode"`
	Limits  []struct {
		limitDecision
		PolicyLimit int64 `json:"policy_limit"`
	} `json:"limits"`
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

func newExplain(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, verbExplain, s, &cobra.Command{
		Short: "Say why an identifier would be allowed or denied now",
		Long: "Say why an identifier would be allowed or denied now: what every limit has counted, and what an override, a block,\n" +
			"a reset or the policy's mode make of it. Nothing is recorded." + targetNotes +
			"  0  explained\n  2  error: standard error says why",
		Example: "  ratelimitd explain sms-send +4915112345678",
	})
	addOutput(s, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := s.prepare(cmd, environ, args)
		if err != nil {
			return err
		}
		c, q := s.client(), &question{verb: verbExplain, body: about, policy: about.Policy}
		a, err := c.ask(cmd.Context(), q)
		if err != nil {
			return err
		}
		var x explanation
		if a.status != http.StatusOK || a.mediaType != mediaJSON || json.Unmarshal(a.body, &x) != nil || x.Because == "" {
			return c.refused(cmd.Context(), q, a)
		}
		return s.print(cmd, a.body, x.write)
	}
	return cmd
}

// write writes a line that says it all, a row for each limit, and what else has a say.
func (x *explanation) write(out *bytes.Buffer) {
	verdict := "denied"
	if x.Allowed {
		verdict = "allowed"
	}
	fmt.Fprintf(out, "%s: %s\n", verdict, printable(x.Detail))
	if len(x.Limits) > 0 {
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "NAME\tALGORITHM\tLIMIT\tUSED\tREMAINING\tRESET\tRETRY AFTER")
		for i := range x.Limits {
			l := &x.Limits[i]
			limit := fmt.Sprint(l.Limit)
			if l.Limit != l.PolicyLimit {
				limit += fmt.Sprintf(" (policy: %d)", l.PolicyLimit)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", printable(l.Name), printable(l.Algorithm), limit, l.used(), l.Remaining,
				cell(&l.ResetAfterMS), cell(l.RetryAfterMS))
		}
		_ = table.Flush() // into a buffer
	}
	x.writeRest(out)
}

func (x *explanation) writeRest(out *bytes.Buffer) {
	if o := x.Override; o != nil {
		fmt.Fprintf(out, "override: %s, for another %s, by %s\n", printable(o.what()), duration(o.ExpiresInMS), printable(o.By))
	}
	if x.Block != nil {
		fmt.Fprintf(out, "block: until %s, number %d in a row\n", printable(x.Block.Until), x.Block.Strikes)
	}
	if x.ResetAt != nil {
		fmt.Fprintf(out, "reset: what was counted before %s is forgotten\n", printable(*x.ResetAt))
	}
	if x.Mode != "enforce" {
		fmt.Fprintf(out, "mode: %s\n", printable(x.Mode))
	}
	fmt.Fprintf(out, "key: %s\n", printable(x.Key))
	for i := range x.Derived {
		fmt.Fprintf(out, "\nderived, under %s, ", printable(x.Derived[i].Policy))
		x.Derived[i].write(out)
	}
}
