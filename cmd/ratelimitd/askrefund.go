package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func newRefund(environ []string) *cobra.Command {
	s := new(askSettings)
	cmd := newAsk(environ, verbRefund, s, &cobra.Command{
		Short: "Give back what was recorded, by its receipt",
		Long: "Give back, once, what a take or a record has recorded.\n\n" +
			"RECEIPT is what was answered then; - reads it from standard input." + askNotes + `  0  refunded
  1  not refunded: the receipt is unknown, was refunded before, or its window is over
  2  error: standard error says why, and whether anything was refunded`,
		Example: `  # a code that could not be sent is not counted
  receipt=$(ratelimitd take sms-send +4915112345678 -o json | jq -r .receipt)
  send-code || ratelimitd refund "$receipt"`,
	})
	cmd.Use, cmd.Args, cmd.ValidArgsFunction = verbRefund+" RECEIPT", oneReceipt, cobra.NoFileCompletions
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		receipt, err := s.receipt(cmd, environ, args[0])
		if err != nil {
			return err
		}
		why, err := s.client().refund(cmd.Context(), receipt)
		switch {
		case err != nil:
			return err
		case why != "":
			fmt.Fprintln(cmd.OutOrStdout(), "not refunded: "+printable(why))
			return errDenied
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), "refunded")
		return err
	}
	return cmd
}

func oneReceipt(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("give one RECEIPT, not %s; - reads it from standard input", count(len(args), "argument", "arguments"))
	}
	return nil
}

// receipt fills in the settings and returns what to refund.
func (s *askSettings) receipt(cmd *cobra.Command, environ []string, given string) (string, error) {
	if err := s.load(cmd, environ); err != nil {
		return "", err
	}
	if given == fromStdin {
		var err error
		if given, err = readLine(cmd.Context(), cmd.InOrStdin(), "receipt"); err != nil {
			return "", err
		}
	}
	if !utf8.ValidString(given) {
		return "", errors.New("that is no RECEIPT: use what was answered")
	}
	return given, nil
}

// refund gives back what receipt is for. why is the server's reason for not doing so;
// empty: it did.
func (c *client) refund(ctx context.Context, receipt string) (why string, err error) {
	q := &question{verb: verbRefund, body: map[string]string{"receipt": receipt}}
	a, err := c.ask(ctx, q)
	if err != nil {
		return "", err
	}
	var done struct{ Refunded bool }
	if a.status == http.StatusOK && a.mediaType == mediaJSON && json.Unmarshal(a.body, &done) == nil && done.Refunded {
		return "", nil
	}
	if p := a.problem(); p != nil && a.status == http.StatusNotFound && p.Field == "receipt" {
		return p.Detail, nil
	}
	return "", c.refused(ctx, q, a)
}
