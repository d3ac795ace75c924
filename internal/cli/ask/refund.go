package ask

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newRefund(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "refund RECEIPT",
		Short: "Refund recorded units, by their receipt",
		Long: "Refund, once, the units of a take or a record, or those that a check with --reserve holds.\n\n" +
			"RECEIPT is the receipt or the reservation in that answer; - reads it from standard input." + remote.Notes + `  0  refunded
  1  not refunded: the receipt is unknown, was refunded or confirmed before, or its window is over
  2  error: standard error says why, and whether anything was refunded`,
		Example: `  # a code that could not be sent is not counted
  receipt=$(ratelimitd take sms-send +4915112345678 -o json | jq -r .receipt)
  send-code || ratelimitd refund "$receipt"`,
		Args: command.Args(1, 1, "one RECEIPT", "- reads it from standard input"),
	}
	takeReceipt(p, cmd, &receiptCall{route: "refund", aftermath: afterRefund, refused: "not refunded: ", done: wasRefunded})
	return cmd
}

var afterRefund = remote.Aftermath{
	remote.RecordedNo:      "Nothing was refunded.",
	remote.RecordedYes:     "Nothing was refunded.", // the units still count
	remote.RecordedUnknown: "Whether it was refunded is unknown: refund again, which has an effect only once.",
}

func wasRefunded(a *remote.Answer) string {
	var answered struct{ Refunded bool }
	if a.Into(&answered) && answered.Refunded {
		return "refunded"
	}
	return ""
}
