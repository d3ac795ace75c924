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

func newRefund(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refund RECEIPT",
		Short: "Give back what was recorded, by its receipt",
		Long: "Give back, once, what a take or a record has recorded.\n\n" +
			"RECEIPT is what was answered then; - reads it from standard input." + remote.Notes + `  0  refunded
  1  not refunded: the receipt is unknown, was refunded or confirmed before, or its window is over
  2  error: standard error says why, and whether anything was refunded`,
		Example: `  # a code that could not be sent is not counted
  receipt=$(ratelimitd take sms-send +4915112345678 -o json | jq -r .receipt)
  send-code || ratelimitd refund "$receipt"`,
		Args: command.Args(1, 1, "one RECEIPT", "- reads it from standard input"),
	}
	asker := remote.NewAsker(p, cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := asker.Load(cmd); err != nil {
			return err
		}
		receipt, err := command.ReadArg(cmd, args[0], "receipt")
		if err != nil {
			return err
		}
		why, err := refund(cmd.Context(), asker.Client(), receipt)
		switch {
		case err != nil:
			return err
		case why != "":
			fmt.Fprintln(cmd.OutOrStdout(), "not refunded: "+remote.Printable(why))
			return command.ErrNo
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "refunded")
		return err
	}
	return cmd
}

// refund gives back what receipt is for. why is the server's reason for not doing so;
// empty: it did.
func refund(ctx context.Context, client *remote.Client, receipt string) (why string, err error) {
	if !utf8.ValidString(receipt) {
		return "", errors.New("that is no RECEIPT: use what was answered")
	}
	q := &remote.Question{Route: "refund", Body: map[string]string{"receipt": receipt}, Aftermath: afterRefund}
	a, err := client.Ask(ctx, q)
	if err != nil {
		return "", err
	}
	var done struct{ Refunded bool }
	if a.Into(&done) && done.Refunded {
		return "", nil
	}
	if p := a.Problem(); p != nil && a.Status == http.StatusNotFound && p.Field == "receipt" {
		return p.Detail, nil
	}
	return "", client.Refused(ctx, q, a)
}

func afterRefund(recorded string) string {
	switch recorded {
	case remote.RecordedNo, remote.RecordedYes: // not asked; the units still count
		return "Nothing was refunded."
	case remote.RecordedUnknown:
		return "Whether it was refunded is unknown: refund again, it gives back once."
	}
	return ""
}
