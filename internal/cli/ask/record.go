package ask

import (
	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

const recordName = "record"

func newRecord(p *command.Process) *cobra.Command {
	d := newDecision(p, &cobra.Command{
		Use:   recordName,
		Short: "Record an event, whatever the limit",
		Long: "Record an event, whatever the limit, and print the resulting counts." + remote.SubjectNotes + `  0  recorded
  2  error: standard error says why, and whether the event was recorded`,
		Example: `  # an upload of 4096 bytes
  ratelimitd record upload-bytes alice --cost 4096

  # the actual number of bytes, of those that a check with --reserve holds
  ratelimitd record upload-bytes alice --cost 4096 --reservation "$held"

  # once, however often it is tried
  ratelimitd record upload-bytes alice --cost 4096 --idempotency-key upload-17`,
	}, afterRecord)
	d.addIdempotencyKey()
	d.Flags().StringVar(&d.reservation, "reservation", "",
		"`token` from a check with --reserve: its units are recorded, or --cost, which may be 0")
	remote.NoFiles(d.Command, "reservation")
	return d.Command
}
