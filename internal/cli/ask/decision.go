package ask

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
)

// decision is the answer to check, record and take.
type decision struct {
	Allowed    *bool  `json:"allowed"`
	Policy     string `json:"policy"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	Used       int64  `json:"used"`
	Mode       string `json:"mode"`
	WouldAllow *bool  `json:"would_allow"` // in mode shadow
	Blocked    bool   `json:"blocked"`
	Reason     string `json:"reason"`   // the rule about numbers that denies; empty: none does
	Override   string `json:"override"` // its kind; empty: none decided
	Degraded   bool   `json:"degraded"`
	Recorded   string `json:"recorded"` // when degraded
	remote.Waits
	Limits      []remote.Limit `json:"limits"`
	Receipt     string         `json:"receipt"`     // of the recorded units
	Release     string         `json:"release"`     // of units under concurrent limits
	Reservation string         `json:"reservation"` // of the units that a check holds
	Settled     *int64         `json:"settled"`     // units of a reservation that count; nil: none was settled
	Over        int64          `json:"over"`        // of these, that it did not hold

	replayed bool // it repeats the answer to an earlier request
}

// decisionIn returns the decision in a, nil if it has none. The status 429 alone is not a denial, since proxies send
// it, too.
func decisionIn(a *remote.Answer) *decision {
	d := &decision{replayed: a.Replayed}
	allowed := a.Status == http.StatusOK
	if allowed && !a.Into(d) || !allowed && !a.IntoDenial(http.StatusTooManyRequests, d) {
		return nil
	}
	if d.Allowed == nil || *d.Allowed != allowed || len(d.Limits) == 0 {
		return nil
	}
	return d
}

// write writes the answer to the command of that name: a line with the verdict, and a row for each limit.
func (d *decision) write(out *bytes.Buffer, name string) {
	fmt.Fprintf(out, "%s %s%s\n", d.verdict(name), d.decider(), d.outlook())
	if d.Degraded {
		fmt.Fprintf(out, "degraded: the store did not answer, and the policy's on_store_error decided; recorded: %s\n",
			remote.Printable(d.Recorded))
	}
	if d.replayed {
		fmt.Fprintln(out, "replayed: this repeats the answer to an earlier request with this idempotency key; nothing was counted now")
	}
	if d.Settled != nil {
		fmt.Fprintf(out, "settled: %d, of which the reservation did not hold %d\n", *d.Settled, d.Over)
	}
	remote.WriteLimits(out, d.Limits, d.unseen())
	if d.Receipt != "" {
		fmt.Fprintf(out, "receipt: %s\n", remote.Printable(d.Receipt))
	}
	if d.Release != "" && d.Release != d.Receipt {
		fmt.Fprintf(out, "release: %s\n", remote.Printable(d.Release))
	}
	if d.Reservation != "" {
		fmt.Fprintf(out, "reservation: %s\n", remote.Printable(d.Reservation))
	}
}

func (d *decision) verdict(name string) string {
	switch {
	case !*d.Allowed:
		return "denied"
	case name == recordName && d.Mode != modeOff && !d.Degraded:
		return "recorded"
	}
	return "allowed"
}

const modeOff = "off"

// The kinds of overrides that the tables know.
const (
	overrideAllow = "allow"
	overrideBlock = "block"
)

// unseen reports whether the call was decided without reading counts, by an override or a rule about numbers.
func (d *decision) unseen() bool { return d.overridden() || d.Reason != "" }

// overridden reports whether an override decided without reading counts.
func (d *decision) overridden() bool {
	return d.Override == overrideAllow || d.Override == overrideBlock
}

// decider describes the limit or the rule that decided.
func (d *decision) decider() string {
	policy, limit := remote.Printable(d.Policy), remote.Printable(d.tightest().Name)
	switch {
	case d.overridden():
		return "under " + policy + ", by an override (" + remote.Printable(d.Override) + ")"
	case d.Reason != "":
		return "under " + policy + ", by the number's " + remote.Printable(strings.ReplaceAll(d.Reason, "_", " "))
	case d.Override != "":
		return "under " + limit + " of " + policy + ", by an override (" + remote.Printable(d.Override) + ")"
	case d.Blocked:
		return "under " + policy + ", by a block after an earlier denial"
	}
	return "under " + limit + " of " + policy
}

// outlook returns the end of the first line.
func (d *decision) outlook() string {
	switch {
	case !*d.Allowed:
		return ": " + d.Advice()
	case d.Override == overrideAllow:
		return ": nothing is counted"
	case d.Mode == modeOff:
		return ", which is off: nothing is counted"
	case d.WouldAllow != nil && !*d.WouldAllow:
		return ", in mode shadow; enforced, it would be denied: " + d.tightest().Advice()
	}
	return fmt.Sprintf(": %d of %d remaining", d.Remaining, d.Limit)
}

// tightest returns the limit that the members of d are about. In mode shadow, d does not have its wait.
func (d *decision) tightest() *remote.Limit {
	denies := !*d.Allowed || d.WouldAllow != nil && !*d.WouldAllow
	for i := range d.Limits {
		l := &d.Limits[i]
		if l.WouldDeny == nil && l.Allowed != denies && l.Limit == d.Limit && l.Remaining == d.Remaining && l.ResetAfterMS == d.ResetAfterMS {
			return l
		}
	}
	return &d.Limits[0]
}
