// Package ask has the commands by which applications and scripts ask a server for decisions and its health.
//
// It prints decisions; package remote asks the server.
package ask

import (
	"bytes"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

// Commands returns the commands of this package.
func Commands(p *command.Process) []*cobra.Command {
	return []*cobra.Command{newCheck(p), newTake(p), newRecord(p), newRefund(p), newConfirm(p), newHealth(p)}
}

// decisionCodes are the exit codes of check and take.
const decisionCodes = `  0  allowed
  1  denied
  2  error: standard error says why`

// decisionCommand is a command whose answer is a decision: check, take or record.
type decisionCommand struct {
	*cobra.Command
	asker *remote.Asker

	cost           int64
	limit          int64         // of the request, if its flag is given
	reserve        time.Duration // of check; 0: nothing is held
	reservation    string        // of record; empty: none is settled
	idempotencyKey string        // of take and record; empty: none
}

// newDecision makes cmd a command that asks for a decision at the route of its name, and prints it.
func newDecision(p *command.Process, cmd *cobra.Command, aftermath func(*decisionCommand) remote.Aftermath) *decisionCommand {
	d := &decisionCommand{Command: cmd, asker: remote.NewSubjectAsker(p, cmd)}
	command.Var(cmd.Flags(), &d.cost, "cost", "1", "units", "cost of the event", remote.WholeNumber)
	remote.NoFiles(cmd, "cost")
	remote.AddLimit(cmd, &d.limit)
	d.asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		about, err := d.asker.Subject(cmd, args)
		if err != nil {
			return err
		}
		about.Cost, about.ReserveMS, about.Reservation = &d.cost, d.reserve.Milliseconds(), d.reservation
		if d.reservation != "" && !cmd.Flags().Changed("cost") { // the cost is that of the hold
			about.Cost = nil
		}
		about.BringLimit(cmd, &d.limit)
		return d.decide(cmd, &remote.Question{
			Route: cmd.Name(), Body: about, Policy: about.Policy, IdempotencyKey: d.idempotencyKey, Aftermath: aftermath(d),
		})
	}
	return d
}

// addIdempotencyKey adds the flag of the idempotency key.
func (d *decisionCommand) addIdempotencyKey() {
	command.Var(d.Flags(), &d.idempotencyKey, "idempotency-key", "", "key",
		"idempotency key: the event counts once, however often it is sent with the same key", remote.HeaderText)
	remote.NoFiles(d.Command, "idempotency-key")
}

// decide asks q and prints the decision. A denial is ErrNo.
func (d *decisionCommand) decide(cmd *cobra.Command, q *remote.Question) error {
	client := d.asker.Client()
	answer, err := client.Ask(cmd.Context(), q)
	if err != nil {
		return err
	}
	decided := decisionIn(answer)
	if decided == nil {
		return client.Refused(cmd.Context(), q, answer)
	}
	if err := d.asker.Print(cmd, answer.Body, func(out *bytes.Buffer) { decided.write(out, cmd.Name()) }); err != nil {
		return err
	}
	if !*decided.Allowed {
		return command.ErrNo
	}
	return nil
}

// afterRecord is the aftermath of commands that record.
func afterRecord(d *decisionCommand) remote.Aftermath {
	retry := "another try may count it twice."
	if d.idempotencyKey != "" {
		retry = "try again with the same --idempotency-key."
	}
	return remote.Aftermath{
		remote.RecordedNo:      "Nothing was recorded.",
		remote.RecordedYes:     "The event was recorded all the same.",
		remote.RecordedUnknown: "Whether the event was recorded is unknown: " + retry,
	}
}
