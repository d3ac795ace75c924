package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// row is a line of a report.
type row struct{ name, value string }

// rows returns the lines about a run and its findings.
func rows(h *history.History, f *Findings) []row {
	r := []row{
		{"seed", fmt.Sprint(h.Header.Seed)},
		{"lasted", h.Header.Lasts.String()},
		{"processes, and their clocks' offsets", fmt.Sprintf("%d, %v", h.Header.Processes, offsets(h))},
		{"each key has an owner", map[bool]string{true: "yes", false: "no"}[h.Header.Peers]},
		{"faults", faultsDone(h)},
		{"calls", fmt.Sprint(f.Calls)},
		{"allowed / denied", fmt.Sprintf("%d / %d", f.Admitted, f.Denied)},
		{"confirmed or refunded", fmt.Sprint(f.Ended)},
		{"outcome unknown / surely not recorded", fmt.Sprintf("%d / %d", f.Unknown, f.Failed)},
		{"more than the limit", fmt.Sprintf("%d, of %d keys", f.Of(CheckLimit), f.Keys)},
		{"buckets that are linearizable / not / undecided", fmt.Sprintf("%d / %d / %d", f.Serial, f.Of(CheckSerial), f.Undecided)},
		{"lost / counted twice / half charged", fmt.Sprintf("%d / %d / %d, of %d keys",
			f.Of(CheckLost), f.Of(CheckDouble), f.Of(CheckHalf), f.Kept)},
		{"receipts that were good twice, or for nothing", fmt.Sprint(f.Of(CheckOnce))},
		{"wrongly denied", wronglyDenied(f)},
		{"slowest answer", rounded(f.Slowest)},
		{"longest until served again", rounded(f.Recovery)},
		{"longest until served while cut off", fmt.Sprintf("%s, of %d cuts", rounded(f.Cut), f.Cuts)},
		{"owners again after cuts", ownersAgain(h)},
		{"clock beyond the tolerance", clockTests(h)},
		{"violations", fmt.Sprint(len(f.Violations))},
	}
	return r
}

// Report describes a run and its findings.
func Report(h *history.History, f *Findings) string {
	var b strings.Builder
	for _, r := range rows(h, f) {
		fmt.Fprintf(&b, "%-52s %s\n", r.name, r.value)
	}
	for _, v := range f.Violations {
		fmt.Fprintf(&b, "\nVIOLATION %v\n", v)
	}
	return b.String()
}

// Table is a table in Markdown, with a column for each run.
type Table struct{ lines []string }

// Add adds a run to t.
func (t *Table) Add(h *history.History, f *Findings) {
	for i, r := range rows(h, f) {
		if len(t.lines) == i {
			t.lines = append(t.lines, "| "+r.name+" |")
		}
		t.lines[i] += " " + r.value + " |"
	}
}

// String returns the table.
func (t *Table) String() string {
	if len(t.lines) == 0 {
		return ""
	}
	rule := strings.Repeat("|---", strings.Count(t.lines[0], "|")-1) + "|"
	return t.lines[0] + "\n" + rule + "\n" + strings.Join(t.lines[1:], "\n") + "\n"
}

func offsets(h *history.History) string {
	var parts []string
	for i := range h.Header.Processes {
		parts = append(parts, h.Header.Offsets[i%len(h.Header.Offsets)].String())
	}
	return strings.Join(parts, " ")
}

func faultsDone(h *history.History) string {
	done := make(map[string]int)
	for i := range h.Faults {
		done[h.Faults[i].Kind]++
	}
	var parts []string
	for _, kind := range history.Kinds() {
		parts = append(parts, fmt.Sprintf("%s %d", kind, done[kind]))
	}
	return strings.Join(parts, ", ")
}

func wronglyDenied(f *Findings) string {
	var parts []string
	for _, kind := range Kinds() {
		parts = append(parts, fmt.Sprintf("%s %d of %d", kind, f.WronglyDenied[kind], f.DeniedOf[kind]))
	}
	return strings.Join(parts, ", ")
}

func ownersAgain(h *history.History) string {
	if h.Owners == nil {
		return "no long cuts"
	}
	return rounded(h.Owners.After)
}

func clockTests(h *history.History) string {
	var parts []string
	for _, t := range h.Clocks {
		parts = append(parts, fmt.Sprintf("%v under %s: refused after %s, back after %s", t.Ahead, t.Beyond, rounded(t.Noticed), rounded(t.Back)))
	}
	return strings.Join(parts, "; ")
}

func rounded(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
