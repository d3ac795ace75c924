package admin

import (
	"bytes"
	"fmt"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

func newShadow(p *command.Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "shadow POLICY",
		Short: "Show how many calls a policy's shadows would have denied, on all instances",
		Long: "Show how many calls, of how many callers, a policy's shadows would have denied: its limits with shadow: true, or all\n" +
			"limits in mode shadow. The server asks all other instances, and names those whose calls are missing." + remote.Notes +
			"  0  it is printed\n  2  error: standard error says why",
		Example: "  ratelimitd shadow sms-send\n  ratelimitd shadow sms-send -o json",
		Args:    command.Args(1, 1, "one POLICY", ""),
	}
	asker := remote.NewAsker(p, cmd)
	asker.AddOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var s shadows
		return asker.Show(cmd, "policies/"+url.PathEscape(args[0])+"/shadow", &s, s.write)
	}
	return cmd
}

// shadows is a server's answer about a policy's shadows.
type shadows struct {
	Policy     string
	Since      *time.Time
	Calls      int64
	Denied     int64
	Undecided  int64
	WouldDeny  int64 `json:"would_deny"`
	Callers    *int64
	Confirmed  *int64
	Limits     []shadowLimit
	Instances  []struct{}
	Unanswered []struct{ Instance, Address, Reason string }
}

type shadowLimit struct {
	Name      string
	Limit     int64
	WouldDeny int64 `json:"would_deny"`
	Callers   *int64
	Hours     []struct {
		Start     time.Time
		Calls     int64
		WouldDeny int64 `json:"would_deny"`
		Callers   *int64
	}
}

// hoursShown is the number of hours that are printed, a day. JSON has all.
const hoursShown = 24

// write writes a line of totals, a row for each limit and for each of the latest hours, and the instances whose calls
// are missing.
func (s *shadows) write(out *bytes.Buffer) {
	if s.Since == nil {
		fmt.Fprintf(out, "nothing of %s is in shadow\n", remote.Printable(s.Policy))
		return
	}
	fmt.Fprintf(out, "%s of %s since %s on %s: %d denied, %d allowed and would be denied\n", command.Count(int(s.Calls), "call", "calls"),
		remote.Printable(s.Policy), s.Since.UTC().Format(time.RFC3339), command.Count(len(s.Instances), "instance", "instances"),
		s.Denied, s.WouldDeny)
	if s.Undecided > 0 {
		fmt.Fprintf(out, "undecided: %d, while the store did not answer\n", s.Undecided)
	}
	if note := s.confirmedNote(); note != "" {
		fmt.Fprintln(out, note)
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "SHADOW\tLIMIT\tHOUR\tCALLS\tWOULD DENY\tCALLERS")
	for i := range s.Limits {
		l := &s.Limits[i]
		fmt.Fprintf(table, "%s\t%d\tall\t%d\t%d\t%s\n", remote.Printable(l.Name), l.Limit, s.Calls, l.WouldDeny, callers(l.Callers))
		for _, h := range l.Hours[max(0, len(l.Hours)-hoursShown):] {
			fmt.Fprintf(table, "\t\t%s\t%d\t%d\t%s\n", h.Start.UTC().Format(time.RFC3339), h.Calls, h.WouldDeny, callers(h.Callers))
		}
	}
	_ = table.Flush() // into a buffer
	for _, u := range s.Unanswered {
		fmt.Fprintf(out, "missing: the calls of %s at %s: %s\n",
			remote.Printable(u.Instance), remote.Printable(u.Address), remote.Printable(u.Reason))
	}
}

// confirmedNote returns a note on the confirmations that the shadows depended on, if they depend on any. Without a
// confirmation they can't be judged.
func (s *shadows) confirmedNote() string {
	switch {
	case s.Confirmed == nil || s.Calls == 0:
		return ""
	case *s.Confirmed == 0:
		return fmt.Sprintf("not judged: no units were confirmed, and limits of %s depend on confirmations, by POST /v1/confirm",
			remote.Printable(s.Policy))
	}
	return fmt.Sprintf("judged by %s confirmed for %s",
		command.Count(int(*s.Confirmed), "unit", "units"), remote.Printable(s.Policy))
}

// callers is a number of callers that may not be known.
func callers(n *int64) string {
	if n == nil {
		return "?"
	}
	return strconv.FormatInt(*n, 10)
}
