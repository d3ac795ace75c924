// Command pumping plays attacks on SMS codes against sms-pumping.yaml, among users of twelve countries, and prints how
// many codes each attacker got, and how many people got none.
//
// It uses ratelimitd's engine and its store in memory. Time is simulated, so a day takes seconds. It sends
// nothing, and calls no service.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ratelimitd/ratelimitd/internal/policyfile"
)

func main() {
	policies := flag.String("policies", "../sms-pumping.yaml", "`file` of the policies")
	seed := flag.Uint64("seed", 1, "seed of the random requests and their times")
	plot := flag.String("plot", "", "`file` for a picture of the results, as SVG")
	flag.Parse()
	if err := run(os.Stdout, *policies, *plot, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "pumping:", err)
		os.Exit(1)
	}
}

// run plays all attacks, prints the results, and draws them into the file plot; empty: no picture.
func run(out io.Writer, file, plot string, seed uint64) error {
	policies, err := policyfile.Load(file)
	if err != nil {
		return err
	}
	var all []*outcome
	for i := range attacks {
		o, err := playAttack(policies, &attacks[i], seed)
		if err != nil {
			return fmt.Errorf("%s: %w", attacks[i].name, err)
		}
		all = append(all, o)
	}
	if plot != "" {
		var drawn bytes.Buffer
		if err := draw(&drawn, all); err != nil {
			return err
		}
		if err := os.WriteFile(plot, drawn.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return writeAttacks(out, all)
}
