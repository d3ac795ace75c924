package ask

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newCheck(p *command.Process) *cobra.Command {
	d := newDecision(p, &cobra.Command{
		Use:   "check",
		Short: "Ask whether an event would be allowed now; record nothing",
		Long: "Ask whether an event would be allowed now. Nothing is recorded.\n\n" +
			"With --reserve the units are held for that long if it is allowed, and the answer has a reservation:\n" +
			"pass it to record, with the actual cost, so that nothing is counted twice, or to refund, which frees the units." +
			remote.SubjectNotes + decisionCodes,
		Example: `  # may this number have another code?
  ratelimitd check sms-send +4915112345678

  # the server's whole answer
  ratelimitd check sms-send +4915112345678 -o json

  # hold a unit, then record it
  held=$(ratelimitd check sms-send +4915112345678 --reserve 30s -o json | jq -r .reservation)
  ratelimitd record sms-send +4915112345678 --reservation "$held"`,
	}, afterCheck)
	command.Var(d.Flags(), &d.reserve, "reserve", "", "duration", "how long to hold the units if the event is allowed, 1s to 1h",
		command.Between(time.Second, time.Hour))
	remote.NoFiles(d.Command, "reserve")
	return d.Command
}

func afterCheck(d *decisionCommand) remote.Aftermath {
	if d.reserve == 0 {
		return nil
	}
	return remote.Aftermath{remote.RecordedUnknown: "Units may be held until the time of --reserve is over."}
}
