package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	closedColumns = []string{
		"peer", "keys", "instances", "connections", "decisions/s", "×", "decisions/CPU s", "×", "CPU µs service", "store", "load",
		"p50 ms", "p90", "p99", "p99.9", "max", "allowed %", "failed", "wrong denials", "over limit",
	}
	openColumns = []string{
		"peer", "keys", "instances", "connections", "decisions/s", "CPU µs service", "store",
		"p50 ms", "p90", "p99", "×", "p99.9", "max", "failed", "wrong denials", "over limit",
	}
)

// Table writes a table in Markdown for each policy and kind of loop. The columns × are relative to the baseline with as
// many instances and connections.
func (r *Report) Table(to io.Writer) error {
	var out strings.Builder
	fmt.Fprintf(&out, "%s, seed %d, %s.\n%s. %s.\n", r.Started.UTC().Format("2006-01-02 15:04 MST"), r.Seed, r.Version, r.Machine, r.Settings)
	for _, skipped := range r.Skipped {
		fmt.Fprintf(&out, "Left out: %s.\n", skipped)
	}
	for _, policy := range r.policies() {
		fmt.Fprintf(&out, "\n`%s`, closed loop, × as %s with as many instances and connections:\n\n", policy, Baseline)
		writeRows(&out, r.rows(policy, false))
		if open := r.rows(policy, true); len(open) > 1 {
			fmt.Fprintf(&out, "\n`%s`, open loop at half of that, and of %s's, latencies from when a call was due:\n\n", policy, Baseline)
			writeRows(&out, open)
		}
	}
	for _, run := range r.Runs {
		if run.Wrong != "" {
			fmt.Fprintf(&out, "\nWRONG: %s, %s, %s: %s\n", run.Subject(), run.Policy, run.Keys, run.Wrong)
		}
	}
	_, err := io.WriteString(to, out.String())
	return err
}

// rows returns the headings, and a row for each run.
func (r *Report) rows(policy string, open bool) [][]string {
	rows := [][]string{closedColumns}
	if open {
		rows[0] = openColumns
	}
	for _, run := range r.Runs {
		if run.Policy != policy || run.Rate > 0 != open {
			continue
		}
		if open {
			rows = append(rows, r.openRow(run))
		} else {
			rows = append(rows, r.closedRow(run))
		}
	}
	return rows
}

func (r *Report) closedRow(run *Run) []string {
	l := run.Latency
	return append([]string{
		run.Peer, run.Keys, fmt.Sprint(run.Instances), fmt.Sprint(run.Connections),
		number(run.PerSecond()), times(r.Ratio(run, (*Run).PerSecond)),
		number(run.PerCPUSecond()), times(r.Ratio(run, (*Run).PerCPUSecond)),
		number(run.PerDecision(run.CPU.Service)), number(run.PerDecision(run.CPU.Store)), number(run.PerDecision(run.CPU.Load)),
	}, ms(l.P50), ms(l.P90), ms(l.P99), ms(l.P999), ms(l.Max),
		number(100*over(float64(run.Allowed), float64(run.Allowed+run.Denied))), fmt.Sprint(run.Failed),
		run.ofKeys(run.WrongDenials), run.ofKeys(run.OverAdmitted))
}

func (r *Report) openRow(run *Run) []string {
	l := run.Latency
	return []string{
		run.Peer, run.Keys, fmt.Sprint(run.Instances), fmt.Sprint(run.Connections), number(run.PerSecond()),
		number(run.PerDecision(run.CPU.Service)), number(run.PerDecision(run.CPU.Store)),
		ms(l.P50), ms(l.P90), ms(l.P99), times(r.Ratio(run, func(run *Run) float64 { return run.Latency.P99 })),
		ms(l.P999), ms(l.Max), fmt.Sprint(run.Failed), run.ofKeys(run.WrongDenials), run.ofKeys(run.OverAdmitted),
	}
}

// ofKeys writes a number that is counted by key; batches have none.
func (r *Run) ofKeys(calls int64) string {
	if r.Batch > 1 {
		return "–"
	}
	return fmt.Sprint(calls)
}

func ms(us float64) string { return number(us / 1000) }

func times(ratio float64) string {
	if ratio == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", ratio)
}

// number writes v with three digits, or with all digits before the point.
func number(v float64) string {
	const ten, hundred = 10, 100
	switch {
	case v == 0:
		return "0"
	case v < ten:
		return fmt.Sprintf("%.2f", v)
	case v < hundred:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// writeRows writes rows in columns of one width, the first of text, the others of numbers.
func writeRows(out *strings.Builder, rows [][]string) {
	const least = 3 // required by Markdown
	widths := slices.Repeat([]int{least}, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, row := range rows {
		for column, cell := range row {
			fmt.Fprintf(out, "| %s ", pad(cell, widths[column], column > 1))
		}
		out.WriteString("|\n")
		if i > 0 {
			continue
		}
		for column, width := range widths {
			line := strings.Repeat("-", width)
			if column > 1 {
				line = line[1:] + ":"
			}
			fmt.Fprintf(out, "| %s ", line)
		}
		out.WriteString("|\n")
	}
}

func pad(cell string, width int, right bool) string {
	blanks := strings.Repeat(" ", width-utf8.RuneCountInString(cell))
	if right {
		return blanks + cell
	}
	return cell + blanks
}
