// Command pumping plays a week of sign-ups against sms-pumping.yaml: honest users of five countries,
// somebody who is paid for messages to 20,000 numbers, and somebody who tries a stolen list of
// numbers. It prints what the messages cost, with the limits and without, and how many honest
// users were denied.
//
// The engine is that of ratelimitd, over its store in memory; time is that of the sign-ups, so a
// week takes seconds. It sends nothing and asks nobody.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func main() {
	policies := flag.String("policies", "../sms-pumping.yaml", "`file` of the policies")
	prices := flag.String("prices", "prices.csv", "`file` of what a message costs in each country, in EUR")
	seed := flag.Uint64("seed", 1, "of who asks for what, and when")
	plot := flag.String("plot", "", "`file` to draw the week into, as SVG")
	flag.Parse()
	if err := run(os.Stdout, *policies, *prices, *plot, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "pumping:", err)
		os.Exit(1)
	}
}

// run plays the week, prints what came of it, and draws it into the file plot; empty: none.
func run(out io.Writer, policiesFile, pricesFile, plot string, seed uint64) error {
	all, err := compare(policiesFile, pricesFile, seed)
	if err != nil {
		return err
	}
	if plot != "" {
		var drawn bytes.Buffer
		if err := all.draw(&drawn); err != nil {
			return err
		}
		if err := os.WriteFile(plot, drawn.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return all.write(out)
}

func compare(policiesFile, pricesFile string, seed uint64) (*comparison, error) {
	whole, err := policyfile.Load(policiesFile)
	if err != nil {
		return nil, err
	}
	prices, err := readPrices(pricesFile)
	if err != nil {
		return nil, err
	}
	asks := aWeek(seed)
	if err := prices.charge(asks); err != nil {
		return nil, fmt.Errorf("%s: %w", pricesFile, err)
	}
	all := &comparison{seed: seed, prices: prices, asks: asks}
	if all.limits, err = play(withoutRules(whole), asks); err != nil {
		return nil, err
	}
	if all.whole, err = play(whole, asks); err != nil {
		return nil, err
	}
	all.budget, err = play(budgetAlone(whole), asks)
	return all, err
}

// withoutRules returns policies without what they say of countries and types of numbers.
func withoutRules(policies []policy.Policy) []policy.Policy {
	limits := make([]policy.Policy, len(policies))
	for i, p := range policies {
		p.Countries, p.NumberTypes = policy.Choice{}, policy.Choice{}
		limits[i] = p
	}
	return limits
}

// budgetAlone returns the policy about money.
func budgetAlone(policies []policy.Policy) []policy.Policy {
	return slices.DeleteFunc(slices.Clone(policies), func(p policy.Policy) bool { return p.Name != "sms-budget" })
}
