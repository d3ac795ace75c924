// Command bench measures ratelimitd and its peers one after the other, each alone on a free port of 127.0.0.1, with the
// same load, and writes a table, JSON and charts. docs/performance.md says what they mean.
//
// With RATELIMITD_TEST_CASSANDRA_HOSTS set, ratelimitd is also measured on that Cassandra, whose processes must be on this
// machine. Exit code 1 means that a measurement failed, or that a peer allowed too many or too few calls.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/measure"
)

// settings are the values of the flags.
type settings struct {
	dir, out       string
	peers          []*peer
	instances      []int // of peers over a shared store
	keys           []load.Keys
	policies       string // names
	connections    []int  // callers at a time
	duration, zipf time.Duration
	warmUp         time.Duration
	settling, warm time.Duration
	seed           uint64
	smoke          bool
	hosts          []string // of Cassandra
	cassandra      measure.PIDs
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, s, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.all(ctx); err != nil {
		return err
	}
	return errors.Join(b.report.Table(stdout), b.verdict())
}

func parse(args []string, stderr io.Writer) (*settings, error) {
	s := &settings{}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.dir, "dir", ".", "folder of this module")
	flags.StringVar(&s.out, "out", "results", "folder for the table, JSON and charts")
	chosen := flags.String("peers", "", "comma-separated, of "+strings.Join(names(allPeers()), ", ")+" (default all)")
	instances := flags.String("instances", "3", "comma-separated, how many processes of each peer over a shared store there are")
	keys := flags.String("keys", "", fmt.Sprintf("comma-separated, of %v (default all)", load.Distributions()))
	flags.StringVar(&s.policies, "policies", "sms-send,api",
		"comma-separated, of policies.yaml; api-local is api under local with write_from: 10%")
	connections := flags.String("connections", "63,600", "comma-separated, how many callers there are at a time")
	flags.DurationVar(&s.duration, "duration", 15*time.Second, "how long to measure under each distribution but zipf")
	flags.DurationVar(&s.zipf, "zipf", 30*time.Second, "how long to measure under zipf, and at half the rate")
	flags.DurationVar(&s.warmUp, "warmup", 5*time.Second, "how long to ask before that")
	flags.DurationVar(&s.warm, "warm", 5*time.Minute,
		"how long to load Cassandra before the first measurement on it: its Java compiles meanwhile")
	flags.DurationVar(&s.settling, "settle", time.Minute, "how long to load Cassandra before the first measurement under each further policy")
	flags.Uint64Var(&s.seed, "seed", rand.Uint64N(1e9), "of the keys drawn")
	flags.Var(&s.cassandra, "cassandra", "comma-separated process ids of Cassandra's nodes (default: found by where they listen)")
	flags.BoolVar(&s.smoke, "smoke", false, "all of it for fractions of a second, and any call that failed is an error")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if s.smoke {
		s.duration, s.zipf, s.warmUp = 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
		s.settling, s.warm = 2*time.Second, 6*time.Second
		*connections = "63"
	}
	if hosts := os.Getenv("RATELIMITD_TEST_CASSANDRA_HOSTS"); hosts != "" {
		s.hosts = strings.Split(hosts, ",")
	}
	var err, alsoErr error
	s.instances, err = numbersOf("-instances", *instances)
	s.connections, alsoErr = numbersOf("-connections", *connections)
	if err := errors.Join(err, alsoErr); err != nil {
		return nil, err
	}
	return s, s.choose(*chosen, *keys)
}

// numbersOf returns the numbers that the list of a flag has.
func numbersOf(name, list string) (numbers []int, err error) {
	for item := range strings.SplitSeq(list, ",") {
		n, err := strconv.Atoi(item)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s: %q is not a number of at least 1", name, item)
		}
		numbers = append(numbers, n)
	}
	return numbers, nil
}

// choose fills in the settings that are chosen by name.
func (s *settings) choose(peers, keys string) error {
	s.peers, s.keys = allPeers(), load.Distributions()
	if peers != "" {
		all := s.peers
		s.peers = nil
		for name := range strings.SplitSeq(peers, ",") {
			i := slices.Index(names(all), name)
			if i < 0 {
				return fmt.Errorf("there is no peer %q; the peers are %s", name, strings.Join(names(all), ", "))
			}
			s.peers = append(s.peers, all[i])
		}
	}
	if keys != "" {
		s.keys = nil
		for name := range strings.SplitSeq(keys, ",") {
			k, err := load.ParseKeys(name)
			if err != nil {
				return err
			}
			s.keys = append(s.keys, k)
		}
	}
	return nil
}
