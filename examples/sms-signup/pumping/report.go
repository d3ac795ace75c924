package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// comparison is a week without limits, by limits alone, by limits and rules about numbers, and by the budget alone.
type comparison struct {
	seed                  uint64
	prices                prices
	asks                  []ask
	limits, whole, budget *played
}

// asked returns what the messages of these callers would be without limits, by country.
func (c *comparison) asked(by who) map[string]int {
	all := make(map[string]int)
	for i := range c.asks {
		if c.asks[i].who == by {
			all[c.asks[i].country]++
		}
	}
	return all
}

// cost returns what messages cost, in EUR.
func (c *comparison) cost(messages map[string]int) (sum float64) {
	for _, country := range slices.Sorted(maps.Keys(messages)) { // in one order: sums of fractions depend on it
		sum += float64(messages[country]) * c.prices[country]
	}
	return sum
}

// saved returns which part of what the attacks cost without limits p saves.
func (c *comparison) saved(p *played) float64 {
	without, with := 0.0, 0.0
	for _, by := range []who{pumper, stuffer} {
		without += c.cost(c.asked(by))
		with += c.cost(p.sent[by])
	}
	return 1 - with/without
}

// signups returns how many honest users there were.
func (c *comparison) signups() (n int) {
	for i := range countries {
		n += countries[i].signups
	}
	return n + class + shop
}

func (c *comparison) write(out io.Writer) error {
	fmt.Fprintf(out, "A week of %d requests for a code, seed %d. Messages, and what they cost in EUR:\n\n", len(c.asks), c.seed)
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "who\tcountry\twithout\tEUR\tlimits alone\tEUR\twith countries\tEUR\t")
	for by := range whoCount {
		c.writeRows(t, by)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nOf what the attacks cost, %.1f %% is saved by limits alone, and %.1f %% with countries.\n",
		100*c.saved(c.limits), 100*c.saved(c.whole))
	fmt.Fprintf(out, "Of %d honest sign-ups, %d were denied once or more by limits alone, and %d with countries.\n",
		c.signups(), len(c.limits.hurt), len(c.whole.hurt))
	fmt.Fprintf(out, "The budget alone would have saved %.1f %%, and denied %d honest sign-ups.\n\n",
		100*c.saved(c.budget), len(c.budget.hurt))
	fmt.Fprintln(out, "What denied, with countries:")
	return c.writeDenials(out)
}

func (c *comparison) writeRows(t io.Writer, by who) {
	asked, sums := c.asked(by), make(map[string]map[string]int)
	sums["without"], sums["limits"], sums["whole"] = asked, c.limits.sent[by], c.whole.sent[by]
	row := func(name, country string, of func(map[string]int) map[string]int) {
		fmt.Fprintf(t, "%s\t%s\t", name, country)
		for _, kind := range []string{"without", "limits", "whole"} {
			messages, n := of(sums[kind]), 0
			for _, m := range messages {
				n += m
			}
			fmt.Fprintf(t, "%d\t%.2f\t", n, c.cost(messages))
		}
		fmt.Fprintln(t)
	}
	for _, country := range slices.Sorted(maps.Keys(asked)) {
		row(whoNames[by], country, func(all map[string]int) map[string]int { return map[string]int{country: all[country]} })
	}
	row(whoNames[by], "all", func(all map[string]int) map[string]int { return all })
}

func (c *comparison) writeDenials(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 3, ' ', tabwriter.AlignRight)
	for by := range whoCount {
		denied := c.whole.deniedBy[by]
		most := slices.SortedFunc(maps.Keys(denied), func(a, b string) int {
			return cmp.Or(denied[b]-denied[a], cmp.Compare(a, b))
		})
		for _, what := range most {
			fmt.Fprintf(t, "%s\t%s\t%d\t\n", whoNames[by], what, denied[what])
		}
	}
	return t.Flush()
}
