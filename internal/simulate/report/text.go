package report

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// worstInText is the number of the worst callers that the text names.
const worstInText = 5

// WriteText writes r as text, without the plots.
func (r *Report) WriteText(w io.Writer) error {
	b := &bytes.Buffer{}
	r.writeLog(b)
	for _, p := range r.Policies {
		p.write(b, r.Compared)
	}
	if r.Decided == 0 {
		b.WriteString("\nNo line asked for a policy: see the lines that were left out.\n")
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (r *Report) writeLog(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s, %s to %s: %s decided\n", count(r.Lines, "line", "lines"), stamp(r.From), stamp(r.To), number(r.Decided))
	for _, line := range r.Notes() {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

// Notes explain which lines were not decided, were out of order, or were decided by a default.
func (r *Report) Notes() (notes []string) {
	note := func(n int64, text string) {
		if n > 0 {
			notes = append(notes, number(n)+" "+text)
		}
	}
	if len(r.Unjudged) > 0 {
		notes = append(notes, "not judged, as they depend on confirmations: "+strings.Join(r.Unjudged, ", ")+
			". Name the field of confirmations with --confirmed")
	}
	if len(r.Defaults) > 0 {
		notes = append(notes, "decided by the default of a limit that comes with requests: "+strings.Join(r.Defaults, ", ")+
			". Name the field that has it with --limit")
	}
	note(r.NoLimit, "have no limit in the field of --limit: the policy's default holds for them")
	if len(r.Untimed) > 0 {
		notes = append(notes, "not judged, as they bound how many requests are under way, and logs don't say how long one took: "+
			strings.Join(r.Untimed, ", "))
	}
	note(r.LeftOut.Where, "left out: they do not meet --where")
	note(r.LeftOut.NoIdentifier, "left out: the field of the identifier is empty")
	note(r.LeftOut.NoPolicy, "left out: the policy that they name is not in the file")
	for _, text := range slices.Sorted(maps.Keys(r.LeftOut.Refused)) {
		note(r.LeftOut.Refused[text], "refused, as a server would: "+text)
	}
	note(r.Late, fmt.Sprintf("out of order by more than %v, and decided as if they were not: a higher --reorder sorts them",
		time.Duration(r.ReorderMS)*time.Millisecond))
	note(r.Listed, "have several addresses, as X-Forwarded-For has them: the first one is counted, which a client may have made up")
	note(r.Forwarded, "have X-Forwarded-For beside the address: behind a proxy, give --identifier http_x_forwarded_for")
	note(r.Unreadable, unreadable(r))
	for _, u := range r.Examples {
		line := fmt.Sprintf("  %s, line %d: %s", printable(u.File), u.Line, u.Why)
		if u.Text != "" {
			line += fmt.Sprintf(": %q", u.Text)
		}
		notes = append(notes, line)
	}
	return notes
}

// unreadable describes the lines that can't be read.
func unreadable(r *Report) string {
	if r.NoAddress == 0 {
		return "can't be read:"
	}
	return fmt.Sprintf("can't be read, %s of them for want of one address that is the client's:", number(r.NoAddress))
}

func (p *Policy) write(b *bytes.Buffer, compared bool) {
	fmt.Fprintf(b, "\n%s: %s", p.Name, p.Summary())
	if p.Mode != "enforce" {
		fmt.Fprintf(b, "  it is in mode %s: a server denies none of these\n", p.Mode)
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "\nLIMIT\tALGORITHM\tIN THE FILE\tDENIED\tSPARES 99 %\tSPARES 99.9 %")
	for i := range p.Limits {
		l := &p.Limits[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s", l.Name, l.Algorithm, l.InFile(), number(l.Denied))
		for _, s := range l.Spares {
			fmt.Fprint(t, "\t", s)
		}
		fmt.Fprintln(t)
	}
	if p.Blocked > 0 {
		fmt.Fprintf(t, "block_for\t\t\t%s\n", number(p.Blocked))
	}
	if p.Refused > 0 {
		fmt.Fprintf(t, "%s\t\t\t%s\n", numberRules, number(p.Refused))
	}
	_ = t.Flush() // into memory
	p.writeCurves(b)
	p.writeWorst(b)
	if compared && p.Against != nil {
		fmt.Fprintf(b, "\n%s", p.Against.Summary())
	}
}

// numberRules is the name of the rules about numbers among the names of limits.
const numberRules = "countries, number_types"

// Summary returns a line about the denied requests and callers.
func (p *Policy) Summary() string {
	about := ""
	if p.Sampled {
		about = "about "
	}
	return fmt.Sprintf("%s of %s denied (%s), %s%s of %s hit (%s)\n", number(p.Denied), count(p.Requests, "request", "requests"),
		share(p.Denied, p.Requests), about, number(p.CallersHit), count(p.Callers, "caller", "callers"), share(p.CallersHit, p.Callers))
}

// String returns the number, marked as a bound if it is one.
func (s Spare) String() string {
	switch {
	case s.Beyond:
		return "none tried"
	case s.AtMost:
		return "at most " + number(s.Number)
	}
	return number(s.Number)
}

func (p *Policy) writeCurves(b *bytes.Buffer) {
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	for i := range p.Limits {
		l := &p.Limits[i]
		if len(l.Curve) == 0 {
			continue
		}
		fmt.Fprintf(t, "\nIF %s WERE", strings.ToUpper(l.Name))
		for _, c := range l.Curve {
			fmt.Fprintf(t, "\t%s", number(c.Number))
		}
		fmt.Fprint(t, "\ndenied")
		for _, c := range l.Curve {
			fmt.Fprintf(t, "\t%s", number(c.Denied))
		}
		fmt.Fprintln(t)
		_ = t.Flush() // into memory
	}
}

func (p *Policy) writeWorst(b *bytes.Buffer) {
	if len(p.Worst) == 0 {
		return
	}
	t := tabwriter.NewWriter(b, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "\nHIT MOST\tDENIED\tOF REQUESTS SINCE\tFIRST\tLAST")
	for _, c := range p.Worst[:min(worstInText, len(p.Worst))] {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", printable(c.Caller), number(c.Denied), number(c.Requests), stamp(c.First), stamp(c.Last))
	}
	_ = t.Flush() // into memory
	if p.WorstOf != "" {
		fmt.Fprintln(b, p.WorstOf)
	}
}

// Summary returns a few lines about the differences of both files.
func (a *Against) Summary() string {
	if a.Requests == 0 {
		return "The file of --against does not have this policy, or it was not asked.\n"
	}
	return fmt.Sprintf("Against the other file, which denies %s and hits %s:\n"+
		"  %s denied by both; %s hit by --policies only, %s by --against only\n",
		number(a.Denied), count(a.CallersHit, "caller", "callers"), count(a.Both, "request", "requests"),
		count(a.OnlyNow, "caller", "callers"), number(a.OnlyAgainst))
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

// printable returns text with question marks for unprintable characters, because it comes from a stranger.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, text)
}

// number returns n with commas between thousands.
func number(n int64) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func count(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return number(n) + " " + several
}

// share returns part of whole in percent.
func share(part, whole int64) string {
	if whole == 0 {
		return "0 %"
	}
	return fmt.Sprintf("%.2f %%", 100*float64(part)/float64(whole))
}
