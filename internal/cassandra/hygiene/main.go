// Command hygiene finds out what months of service leave in Cassandra: it runs several
// instances' worth of the real engine and store on a node of its own, with windows of
// seconds instead of hours and everything that follows from windows shortened likewise,
// and samples what is on disk, what reads walk over and how long they take.
//
//	hygiene [-for 33m] [-rate 650] -out FOLDER
//	hygiene -draw -out FOLDER                     draws again what samples.csv there says
//
// It writes samples.csv, charts (SVG) and summary.md into the folder. The numbers are
// of this machine at that time: ratios between the first and the last quarter say
// whether something grows; nothing here passes or fails.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settings are what the command line says.
type settings struct {
	lasts time.Duration // of the load
	rate  int           // calls a second, of all instances
	out   string        // the folder for what was found
	draw  bool          // what is there already
}

func main() {
	s, err := parse(os.Args[1:], os.Stderr)
	if err != nil {
		os.Exit(2) // the flags have said what is wrong
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err = run(ctx, s, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "hygiene:", err)
		os.Exit(1)
	}
}

func parse(args []string, stderr io.Writer) (s settings, err error) {
	flags := flag.NewFlagSet("hygiene", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.DurationVar(&s.lasts, "for", 33*time.Minute, "how long the load lasts")
	flags.IntVar(&s.rate, "rate", 650, "calls a second")
	flags.StringVar(&s.out, "out", "hygiene", "folder for samples.csv, the charts and summary.md")
	flags.BoolVar(&s.draw, "draw", false, "run nothing, draw the samples.csv that is there")
	return s, flags.Parse(args)
}

// run does all of it. What was sampled before a signal is written, too.
func run(ctx context.Context, s settings, log io.Writer) error {
	if s.draw {
		return drawAgain(s.out)
	}
	if err := os.MkdirAll(s.out, 0o755); err != nil {
		return err
	}
	node, err := startNode(ctx, log)
	if err != nil {
		return err
	}
	defer node.close()
	all, err := openInstances(ctx, node)
	if err != nil {
		return err
	}
	defer all.close()
	loaded := &load{instances: all, rate: s.rate, latencies: newLatencies()}
	samples := newSeries(time.Now())
	if err := underLoad(ctx, s, node, loaded, samples, log); err != nil {
		return err
	}
	return write(s.out, samples)
}

// underLoad samples while the load lasts.
func underLoad(ctx context.Context, s settings, node *node, loaded *load, samples *series, log io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, s.lasts)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- loaded.run(ctx) }()
	sampler := &sampler{node: node, load: loaded, to: samples, log: log}
	sampler.run(ctx)
	return <-done
}

func drawAgain(folder string) error {
	file, err := os.Open(filepath.Join(folder, samplesFile))
	if err != nil {
		return err
	}
	defer file.Close()
	samples, err := readCSV(file)
	if err != nil {
		return fmt.Errorf("reading %s: %w", file.Name(), err)
	}
	return write(folder, samples)
}

const samplesFile = "samples.csv"

// write puts everything that was found into the folder.
func write(folder string, samples *series) error {
	if err := writeFile(filepath.Join(folder, samplesFile), samples.writeCSV); err != nil {
		return err
	}
	for i := range charts {
		c := &charts[i]
		if err := writeFile(filepath.Join(folder, c.name+".svg"), func(to io.Writer) error { return c.draw(to, samples) }); err != nil {
			return err
		}
	}
	return writeFile(filepath.Join(folder, "summary.md"), samples.writeSummary)
}

func writeFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := write(file); err != nil {
		file.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return file.Close()
}
