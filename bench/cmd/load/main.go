// Command load calls a running service over HTTP/1.1, and prints the result as JSON. The service may be
// ratelimitd, or any other that answers POST /v1/take or /v1/batch like it.
//
//	load -address 127.0.0.1:8080 -policy api=1000/1m -keys zipf -service 4711 -store 4712,4713
//
// Exit code 1 means that it failed, or that the service allowed more or less than the policy.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/measure"
	"github.com/ratelimitd/ratelimitd/bench/policy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}

// arguments are the values of the flags.
type arguments struct {
	load.Options
	target         load.Target
	service, store measure.PIDs
}

func parse() (*arguments, error) {
	a, policies := &arguments{}, policy.List(nil)
	flag.StringVar(&a.target.Address, "address", "127.0.0.1:8080", "host:port of the service")
	flag.Var(&policies, "policy", "NAME=LIMIT/WINDOW")
	keys := flag.String("keys", "zipf", fmt.Sprint("one of ", load.Distributions()))
	flag.IntVar(&a.Connections, "connections", 64, "how many callers there are")
	flag.Float64Var(&a.Rate, "rate", 0, "calls a second that are due, whatever is answered; 0: each caller asks when it was answered")
	flag.IntVar(&a.Batch, "batch", 0, "takes a call, by POST /v1/batch; 0: one by POST /v1/take")
	flag.DurationVar(&a.WarmUp, "warmup", 5*time.Second, "how long to ask before measuring")
	flag.DurationVar(&a.Duration, "duration", 15*time.Second, "how long to measure")
	flag.Uint64Var(&a.Seed, "seed", rand.Uint64N(1e9), "of the keys drawn")
	flag.Var(&a.service, "service", "process ids whose use of the processor is the service's")
	flag.Var(&a.store, "store", "process ids whose use of the processor is the store's")
	flag.Parse()
	if len(policies) != 1 {
		return nil, errors.New("give one -policy")
	}
	const patience = 30 * time.Second
	a.Limit, a.Window = policies[0].Limit, policies[0].Window
	a.target.Policy, a.target.Batch, a.target.Lifetime = policies[0].Name, a.Batch, a.WarmUp+a.Duration+patience
	a.target.Prefix = fmt.Sprintf("+49%d", time.Now().UnixMilli()) // callers of this run only
	a.Open = a.target.Open
	var err error
	a.Keys, err = load.ParseKeys(*keys)
	return a, err
}

func run(ctx context.Context) error {
	a, err := parse()
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "seed", a.Seed)
	r, err := measure.Run(ctx, a.Options, a.service, a.store)
	if err != nil {
		return err
	}
	r.Peer, r.Policy, r.Instances = a.target.Address, a.target.Policy, 1
	encoder := json.NewEncoder(os.Stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%.0f decisions a second, %.0f a CPU second\n", r.PerSecond(), r.PerCPUSecond())
	if r.Wrong != "" {
		return errors.New(r.Wrong)
	}
	return nil
}
