package main

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// report has the results of a play.
type report struct {
	rules   []rule
	seed    uint64
	over    time.Duration
	took    time.Duration
	target  Phone // the victim's number
	visits  []visit
	results []result // of visits, in their order
	sent    map[Phone]int
	lost    []string // messages that the gateway accepted but did not deliver
}

// tally sums up the results of one caller.
type tally struct {
	numbers                                map[Phone]bool
	asked, sent, denied, undecided, failed int
	waits                                  []time.Duration // Retry-After of denials
	took                                   []time.Duration
}

func (t *tally) add(v *visit, r *result) {
	phone, _ := ParsePhone(v.typed) // the crowd types numbers only
	t.numbers[phone] = true
	t.asked++
	t.took = append(t.took, r.took)
	switch r.status {
	case http.StatusAccepted:
		t.sent++
	case http.StatusTooManyRequests:
		t.denied++
		t.waits = append(t.waits, r.retryAfter)
	case http.StatusServiceUnavailable:
		t.undecided++
	default:
		t.failed++
	}
}

// tallyOf sums up the results of these callers.
func (r *report) tallyOf(who ...caller) *tally {
	t := &tally{numbers: make(map[Phone]bool)}
	for i := range r.visits {
		if slices.Contains(who, r.visits[i].caller) {
			t.add(&r.visits[i], &r.results[i])
		}
	}
	slices.Sort(t.waits)
	slices.Sort(t.took)
	return t
}

// print writes the table and its conclusions.
func (r *report) print(w io.Writer) {
	all := r.tallyOf(callers...)
	fmt.Fprintf(w, "%d sign-ups in %.1f s, seed %d, %d at a time; policy %s:%s\n\n",
		all.asked, r.took.Seconds(), r.seed, atOnce, policySMS, r.describeRules())
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%*s\tnumbers\tasked\tcodes\tdenied\tRetry-After\tno decision\tfailed\tp50\tp99\t\n", whoWidth, "who")
	for _, who := range callers {
		printRow(table, string(who), r.tallyOf(who))
	}
	printRow(table, "all", all)
	table.Flush()
	fmt.Fprintf(w, "\nThe gateway sent %d codes to %d numbers, %d at most to one.\n", r.sentInAll(), len(r.sent), r.mostSent())
	if len(r.lost) > 0 {
		fmt.Fprintf(w, "It lost %d more, which were refunded.\n", len(r.lost))
	}
	fmt.Fprintf(w, "The victim's number got %d of the %d that were asked for; in %.1f s the limits allow %d:%s.\n",
		r.sent[r.target], r.tallyOf(victim, hammerer).asked, r.took.Seconds(), r.most(), r.describeMost())
}

// whoWidth left-aligns the first column; the others are numbers.
const whoWidth = -26

func printRow(w io.Writer, who string, t *tally) {
	waits := "-"
	if len(t.waits) > 0 {
		waits = fmt.Sprintf("%.0f–%.0f s", t.waits[0].Seconds(), t.waits[len(t.waits)-1].Seconds())
	}
	fmt.Fprintf(w, "%*s\t%d\t%d\t%d\t%d\t%s\t%d\t%d\t%v\t%v\t\n", whoWidth, who, len(t.numbers), t.asked, t.sent,
		t.denied, waits, t.undecided, t.failed, percentile(t.took, 50), percentile(t.took, 99))
}

// percentile returns the smallest of sorted that p percent do not exceed, in tenths
// of milliseconds.
func percentile(sorted []time.Duration, p int) time.Duration {
	const all, shown = 100, 100 * time.Microsecond
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+all-1)/all-1].Round(shown)
}

func (r *report) describeRules() string {
	var b strings.Builder
	for _, rule := range r.rules {
		fmt.Fprintf(&b, " %d in %v (%s)", rule.Limit, time.Duration(rule.WindowMS)*time.Millisecond, rule.Name)
	}
	return b.String()
}

func (r *report) describeMost() string {
	var b strings.Builder
	for _, rule := range r.rules {
		fmt.Fprintf(&b, " %d (%s)", rule.most(r.took), rule.Name)
	}
	return b.String()
}

// most returns how many codes all limits together allow one number.
func (r *report) most() int {
	most := r.rules[0].most(r.took)
	for _, rule := range r.rules {
		most = min(most, rule.most(r.took))
	}
	return most
}

func (r *report) mostSent() (most int) {
	for _, n := range r.sent {
		most = max(most, n)
	}
	return most
}

func (r *report) sentInAll() (sum int) {
	for n := range maps.Values(r.sent) {
		sum += n
	}
	return sum
}

// check returns an error if a number got too many codes, or if answers and gateway
// disagree.
func (r *report) check() error {
	if got := r.mostSent(); got > r.most() {
		return fmt.Errorf("a number got %d codes where the limits allow %d", got, r.most())
	}
	all := r.tallyOf(callers...)
	unanswered := slices.ContainsFunc(r.results, func(result result) bool { return result.status == 0 })
	if got := r.sentInAll() + len(r.lost); !unanswered && got != all.sent {
		return fmt.Errorf("the gateway sent %d codes, but %d callers were told of one", got, all.sent)
	}
	return nil
}
