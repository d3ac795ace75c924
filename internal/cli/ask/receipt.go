package ask

import (
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
		if !utf8.ValidString(receipt) {
			return errors.New("that is not a RECEIPT: use the one in the answer")
		}
		q := &remote.Question{Route: call.route, Body: map[string]string{"receipt": receipt}, Aftermath: call.aftermath}
		a, err := asker.Client().Ask(cmd.Context(), q)
		if err != nil {
			return err
		}
		if done := call.done(a); done != "" {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), done)
			return err
		}
		if p := a.Problem(); p != nil && a.Status == http.StatusNotFound && p.Field == "receipt" {
			fmt.Fprintln(cmd.OutOrStdout(), call.refused+remote.Printable(p.Detail))
			return command.ErrNo
		}
		return asker.Client().Refused(cmd.Context(), q, a)
	}
}
