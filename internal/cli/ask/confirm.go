package ask

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newConfirm(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm RECEIPT",
		Short: "Confirm that recorded units were real",
		Long: "Confirm that the units of a take or a record were real: the code was entered.\n" +
			"Limits with until: confirmed then free them, and conversions count them as confirmed, once, however often the\n" +
			"command is repeated.\n\n" +
			"RECEIPT is the receipt in that answer; - reads it from standard input." + remote.Notes + `  0  confirmed, now or before
  1  not confirmed: the receipt is unknown or was refunded, its window is over, or its policy not in force
  2  error: standard error says why, and whether anything was confirmed`,
		Example: `  # the caller has entered the code
  receipt=$(ratelimitd take sms-send +4915112345678 -o json | jq -r .receipt)
  ratelimitd confirm "$receipt"`,
		Args: command.Args(1, 1, "one RECEIPT", "- reads it from standard input"),
	}
	takeReceipt(p, cmd, &receiptCall{route: "confirm", aftermath: afterConfirm, refused: "not confirmed: ", done: wasConfirmed})
	return cmd
}

var afterConfirm = remote.Aftermath{
	remote.RecordedNo:      "Nothing was confirmed.",
	remote.RecordedYes:     "Nothing was confirmed.", // the units still count
	remote.RecordedUnknown: "Whether it was confirmed is unknown: confirm again, it counts once.",
}

// wasConfirmed returns the effect of a confirmation.
func wasConfirmed(a *remote.Answer) string {
	var answered struct {
		Confirmed *bool
		Replayed  bool
	}
	switch {
	case !a.Into(&answered) || answered.Confirmed == nil:
		return ""
	case !*answered.Confirmed:
		return "nothing changes: no limit of its policies depends on confirmations"
	case answered.Replayed:
		return "confirmed before"
	}
	return "confirmed"
}
