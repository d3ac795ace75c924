package ask

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

// receiptCall is the request of a command for a receipt.
type receiptCall struct {
	route     string
	aftermath remote.Aftermath
	refused   string                      // in front of the server's reason
	done      func(*remote.Answer) string // the outcome in an answer; empty: it has none
}

// takeReceipt makes cmd a command that sends its argument, a receipt.
func takeReceipt(p *command.Process, cmd *cobra.Command, call *receiptCall) {
	asker := remote.NewAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		receipt, err := command.ReadArg(cmd, args[0], "receipt")
		if err != nil {
			return err
		}
		done, why, err := call.ask(cmd.Context(), asker.Client(), receipt)
		switch {
		case err != nil:
			return err
		case why != "":
			fmt.Fprintln(cmd.OutOrStdout(), call.refused+remote.Printable(why))
			return command.ErrNo
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
		return err
	}
}

// ask sends receipt, and returns the outcome, or the server's reason why nothing was done.
func (c *receiptCall) ask(ctx context.Context, client *remote.Client, receipt string) (done, why string, err error) {
	if !utf8.ValidString(receipt) {
		return "", "", errors.New("that is not a RECEIPT: use the one in the answer")
	}
	q := &remote.Question{Route: c.route, Body: map[string]string{"receipt": receipt}, Aftermath: c.aftermath}
	a, err := client.Ask(ctx, q)
	if err != nil {
		return "", "", err
	}
	if done = c.done(a); done != "" {
		return done, "", nil
	}
	if p := a.Problem(); p != nil && a.Status == http.StatusNotFound && p.Field == "receipt" {
		return "", p.Detail, nil
	}
	return "", "", client.Refused(ctx, q, a)
}
