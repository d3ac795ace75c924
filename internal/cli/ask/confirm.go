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

func newConfirm(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "confirm RECEIPT",
		Short: "Say that what was recorded turned out to be real",
		Long: "Say that what a take or a record has recorded turned out to be real: the code was entered.\n" +
			"Limits until: confirmed give it back, and conversions count it as confirmed, once\nhowever often it is said.\n\n" +
			"RECEIPT is what was answered then; - reads it from standard input." + remote.Notes + `  0  confirmed, now or before
  1  not confirmed: the receipt is unknown or was refunded, its window is over, or its policy not in force
  2  error: standard error says why, and whether anything was confirmed`,
		Example: `  # a code that was entered is none of a pumper
  receipt=$(ratelimitd take sms-send +4915112345678 -o json | jq -r .receipt)
  ratelimitd confirm "$receipt"`,
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
		done, why, err := confirm(cmd.Context(), asker.Client(), receipt)
		switch {
		case err != nil:
			return err
		case why != "":
			fmt.Fprintln(cmd.OutOrStdout(), "not confirmed: "+remote.Printable(why))
			return command.ErrNo
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), done)
		return err
	}
	return cmd
}

// confirm confirms receipt, and says what that did. why is the server's reason for not doing so; empty:
// it did.
func confirm(ctx context.Context, client *remote.Client, receipt string) (done, why string, err error) {
	if !utf8.ValidString(receipt) {
		return "", "", errors.New("that is no RECEIPT: use what was answered")
	}
	q := &remote.Question{Route: "confirm", Body: map[string]string{"receipt": receipt}, Aftermath: afterConfirm}
	a, err := client.Ask(ctx, q)
	if err != nil {
		return "", "", err
	}
	var answered struct {
		Confirmed *bool
		Replayed  bool
	}
	if a.Into(&answered) && answered.Confirmed != nil {
		switch {
		case !*answered.Confirmed:
			return "nothing changes: no limit of its policies goes by what is confirmed", "", nil
		case answered.Replayed:
			return "confirmed before", "", nil
		}
		return "confirmed", "", nil
	}
	if p := a.Problem(); p != nil && a.Status == http.StatusNotFound && p.Field == "receipt" {
		return "", p.Detail, nil
	}
	return "", "", client.Refused(ctx, q, a)
}

func afterConfirm(recorded string) string {
	switch recorded {
	case remote.RecordedNo, remote.RecordedYes: // not asked; the units still count
		return "Nothing was confirmed."
	case remote.RecordedUnknown:
		return "Whether it was confirmed is unknown: confirm again, it counts once."
	}
	return ""
}
