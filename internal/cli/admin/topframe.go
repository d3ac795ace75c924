package admin

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ratelimitd/ratelimitd/internal/cli/remote"
	"github.com/ratelimitd/ratelimitd/internal/ui"
)

// leastText is the length to which names are shortened on a narrow terminal.
const leastText = 6

// table is a part of a frame. Its first columns are text, on the left, and the others figures, on the right.
type table struct {
	titles []string   // of the columns
	rows   [][]string // if there are none, the table is not shown
	texts  int        // columns of text
	all    int        // number of rows, listed or not
	notes  []string   // lines below
}

// writeFrame writes a frame of at most width columns and height lines, where 0 is no bound. Each table gets some of its
// rows.
func writeFrame(out *bytes.Buffer, s *ui.State, shadows *shadowTable, width, height int) {
	lines := summary(s)
	tables := []*table{policyTable(s), confirmationTable(s.Confirmations), worstTable(s.Worst), memberTable(s), shadows.table(s.Now)}
	for _, line := range lines {
		out.WriteString(cut(line, width) + "\n")
	}
	if height > 0 {
		share(tables, height-len(lines))
	}
	for _, t := range tables {
		t.write(out, width)
	}
}

// share cuts the rows of tables to the lines that there are, evenly. Notes give way to the first row of each table.
func share(tables []*table, lines int) {
	shown := make([]int, len(tables))
	for _, t := range tables {
		lines -= t.lines(0)
	}
	for _, t := range tables {
		for len(t.notes) > 0 && lines < len(tables) {
			t.notes = t.notes[1:]
			lines++
		}
	}
	for more := true; more && lines > 0; {
		more = false
		for i, t := range tables {
			if shown[i] < len(t.rows) && lines > 0 {
				shown[i]++
				lines--
				more = true
			}
		}
	}
	for i, t := range tables {
		t.rows = t.rows[:max(min(1, len(t.rows)), shown[i])]
	}
}

// lines returns the number of lines of the table with this number of rows.
func (t *table) lines(rows int) int {
	if len(t.rows) == 0 && len(t.notes) == 0 {
		return 0
	}
	lines := 1 + len(t.notes) + rows // the first is empty
	if len(t.rows) > 0 {
		lines++
	}
	return lines
}

func (t *table) write(out *bytes.Buffer, width int) {
	if t.lines(0) == 0 {
		return
	}
	out.WriteByte('\n')
	if len(t.rows) > 0 {
		titles := append([]string(nil), t.titles...)
		if all := max(t.all, len(t.rows)); all > len(t.rows) {
			titles[0] += fmt.Sprintf(" (%d of %d)", len(t.rows), all)
		}
		writeColumns(out, append([][]string{titles}, t.rows...), t.texts, width)
	}
	for _, note := range t.notes {
		out.WriteString(cut(note, width) + "\n")
	}
}

// summary returns the lines above the tables.
func summary(s *ui.State) []string {
	i, d := &s.Instance, &s.Decisions
	lines := []string{
		fmt.Sprintf("%s, %sup %s: %s, %s", s.Now.Local().Format(time.TimeOnly), ofHowMany(s), s.Now.Sub(i.Started).Round(time.Second),
			remote.Printable(i.Name), remote.Printable(i.Version)),
		fmt.Sprintf("decisions   %s/s allowed, %s/s denied, %s/s would be denied",
			rate(d.AllowedPerSecond), rate(d.DeniedPerSecond), rate(d.WouldDenyPerSecond)),
		fmt.Sprintf("last hour   %s allowed, %s denied%s", number(d.Allowed), number(d.Denied), reasons(&d.DeniedFor)),
		fmt.Sprintf("latency     p50 %s, p99 %s", latency(s.Latency.P50MS), latency(s.Latency.P99MS)),
		"store       " + storeText(s),
		"clock       " + clockText(s),
	}
	if len(s.Unanswered) > 0 {
		lines = append(lines, "missing     "+missing(s.Unanswered))
	}
	for _, w := range s.Warnings {
		lines = append(lines, "warning     "+remote.Printable(w))
	}
	return lines
}

// ofHowMany returns the number of instances that the figures cover, empty if they are those of one.
func ofHowMany(s *ui.State) string {
	if s.Scope != ui.ScopeInstances {
		return ""
	}
	return fmt.Sprintf("%d of %d instances, asked: ", len(s.Instances), len(s.Instances)+len(s.Unanswered))
}

// missing names the instances that did not answer, in one line.
func missing(all []ui.Unanswered) string {
	var some []string
	for _, u := range all {
		some = append(some, fmt.Sprintf("%s: %s (%s)",
			remote.Printable(u.Instance), remote.Printable(u.Reason), cmp.Or(remote.Printable(u.Address), "no address")))
	}
	return strings.Join(some, "; ")
}

// reasons returns the numbers of denials by their reason.
func reasons(r *ui.Reasons) string {
	var some []string
	for _, reason := range []struct {
		n    float64
		text string
	}{{r.OverLimit, "over limit"}, {r.Blocked, "blocked"}, {r.Refused, "refused"}, {r.StoreError, "store error"}} {
		if reason.n > 0 {
			some = append(some, number(reason.n)+" "+reason.text)
		}
	}
	if len(some) == 0 {
		return ""
	}
	return ": " + strings.Join(some, ", ")
}

// callsNoted is the maximum of notes on policies whose calls were also denied by other limits.
const callsNoted = 3

func policyTable(s *ui.State) *table {
	var calls []string
	t := &table{
		titles: []string{"POLICY", "MODE", "ALLOW/S", "DENY/S", "ALLOW/H", "DENY/H", "SHARE", "WOULD/H"},
		texts:  2, all: len(s.Policies) + s.LeftOut,
	}
	for i := range s.Policies {
		p := &s.Policies[i]
		t.rows = append(t.rows, []string{
			remote.Printable(p.Name), remote.Printable(p.Mode), rate(p.AllowedPerSecond), rate(p.DeniedPerSecond),
			number(p.Allowed), number(p.Denied), percent(p.Denied, p.Allowed+p.Denied+p.WouldDeny), number(p.WouldDeny),
		})
		if p.Calls.Denied != p.Denied {
			calls = append(calls, fmt.Sprintf("%s of %s calls for %s were denied, also by other limits of the call",
				number(p.Calls.Denied), number(p.Calls.Allowed+p.Calls.Denied+p.Calls.WouldDeny), remote.Printable(p.Name)))
		}
	}
	t.notes = calls[:min(len(calls), callsNoted)]
	if s.LeftOut > 0 {
		t.notes = append(t.notes, fmt.Sprintf("and %d quieter policies", s.LeftOut))
	}
	return t
}

// confirmationTable returns the table of units sent and confirmed, by policy and country.
func confirmationTable(all []ui.ConfirmationState) *table {
	t := &table{titles: []string{"SENT UNDER", "TO", "SENT/D", "CONFIRMED/D", "SHARE", "UNCONFIRMED/D", "BOUND"}, texts: 2, all: len(all)}
	for i := range all {
		c := &all[i]
		bound := "-"
		if c.BoundUsed != nil {
			bound = percent(*c.BoundUsed, 1)
		}
		t.rows = append(t.rows, []string{
			remote.Printable(c.Policy), cmp.Or(remote.Printable(c.Country), "-"), number(c.Sent), number(c.Confirmed),
			percent(c.Confirmed, c.Sent), number(c.Unconfirmed), bound,
		})
	}
	return t
}

// worstTable returns the table of the hashed keys that went the furthest past a limit.
func worstTable(worst []ui.WorstKey) *table {
	t := &table{titles: []string{"FURTHEST PAST A LIMIT", "POLICY", "ATTEMPTS"}, texts: 2, all: len(worst)}
	for _, w := range worst {
		t.rows = append(t.rows, []string{remote.Printable(w.Key), remote.Printable(w.Policy), fmt.Sprint(w.Attempts)})
	}
	return t
}

func memberTable(s *ui.State) *table {
	m := s.Members
	if m == nil {
		return &table{}
	}
	perSecond := make(map[string]string)
	for i := range s.Instances {
		d := &s.Instances[i].Decisions
		perSecond[s.Instances[i].ID] = rate(d.AllowedPerSecond + d.DeniedPerSecond + d.WouldDenyPerSecond)
	}
	t := &table{titles: []string{"MEMBER", "ADDRESS", "DECIDES/S", "OWNS"}, texts: 2, all: len(m.List)}
	for _, member := range m.List {
		id, owns := remote.Printable(member.ID), fmt.Sprintf("%.1f %% of keys", 100*member.Share)
		if member.Self {
			id += " (asked)"
		}
		if m.Mode == "shared" {
			owns = "shared"
		}
		t.rows = append(t.rows, []string{
			id, cmp.Or(remote.Printable(member.Address), "-"), cmp.Or(perSecond[member.ID], "-"), owns,
		})
	}
	return t
}

func storeText(s *ui.State) string {
	how := "answers"
	switch {
	case !s.Store.Ready:
		how = "is not ready"
	case s.Store.BreakerOpen:
		how = "fails, and is not asked for now"
	}
	text := fmt.Sprintf("%s %s: p50 %s, p99 %s", remote.Printable(s.Instance.Store), how,
		latency(s.Store.Latency.P50MS), latency(s.Store.Latency.P99MS))
	if s.Store.Failures > 0 || s.Store.Degraded > 0 {
		text += fmt.Sprintf("; last hour: %s failures, %s decisions by on_store_error", number(s.Store.Failures), number(s.Store.Degraded))
	}
	return text
}

func clockText(s *ui.State) string {
	if s.Clock.OffsetMS == nil {
		return "this machine's, with no other to compare with"
	}
	text := fmt.Sprintf("%s from the store's, %g ms tolerated", signed(*s.Clock.OffsetMS), s.Instance.ClockToleranceMS)
	if !s.Clock.WithinTolerance {
		text += ": it is off"
	}
	return text
}

// writeColumns writes rows in columns. If they are wider than width, it shortens the longest texts.
func writeColumns(out *bytes.Buffer, rows [][]string, texts, width int) {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if width > 0 {
		narrow(widths, texts, width)
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			cell = cut(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if i < texts {
				line.WriteString(cell + pad)
			} else {
				line.WriteString(pad + cell)
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// narrow reduces the widest columns of text until all fit, or no text can be shorter.
func narrow(widths []int, texts, width int) {
	over := 2*(len(widths)-1) - width
	for _, w := range widths {
		over += w
	}
	for ; over > 0; over-- {
		widest := 0
		for i := range texts {
			if widths[i] > widths[widest] {
				widest = i
			}
		}
		if widths[widest] <= leastText {
			return
		}
		widths[widest]--
	}
}

func rate(perSecond float64) string { return fmt.Sprintf("%.1f", perSecond) }

func number(n float64) string { return fmt.Sprintf("%.0f", n) }

// percent returns part as a share of all, in the format of the page.
func percent(part, all float64) string {
	switch {
	case all == 0:
		return "-"
	case part > 0 && part < all/100:
		return fmt.Sprintf("%.2f %%", 100*part/all)
	}
	return fmt.Sprintf("%.1f %%", 100*part/all)
}

func latency(ms *float64) string {
	if ms == nil {
		return "-"
	}
	if *ms < 1 {
		return fmt.Sprintf("%.2f ms", *ms)
	}
	return fmt.Sprintf("%.1f ms", *ms)
}

// signed returns a duration with its sign, unless it rounds to zero.
func signed(ms float64) string {
	text := fmt.Sprintf("%+.2f ms", ms)
	if strings.Trim(text, "+-0.") == " ms" {
		return "0.00 ms"
	}
	return text
}
