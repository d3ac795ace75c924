package ask

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newTake(p *command.Process) *cobra.Command {
	d := newDecision(p, &cobra.Command{
		Use:   "take",
		Short: "Check and record an event as one step",
		Long: "Check and record as one step: the event is recorded if it is allowed." + remote.SubjectNotes + decisionCodes +
			", and whether the event was recorded",
		Example: `  # one code, with the number from standard input
  printf %s "$NUMBER" | ratelimitd take sms-send -

  # in a script: mail is sent only within the limit
  ratelimitd take mail alice >/dev/null && send-mail alice

  # another server
  ratelimitd take login 203.0.113.7 --server https://limits.example.org`,
	}, afterRecord)
	d.addIdempotencyKey()
	return d.Command
}
