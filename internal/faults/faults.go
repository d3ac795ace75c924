//go:build unix

// Package faults runs a cluster of Cassandra nodes and several ratelimitd processes, each with a clock of
// its own. Clients call them while nodes and processes are killed, frozen and slowed down, as a seed decides. It keeps a
// history of the calls.
//
// Package check judges the history.
package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
	"github.com/ratelimitd/ratelimitd/internal/faults/history"
	"github.com/ratelimitd/ratelimitd/internal/faults/schedule"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
)

// Options of a run.
type Options struct {
	Seed         uint64
	Lasts        time.Duration   // of the load
	Processes    int             // of ratelimitd
	Offsets      []time.Duration // of their clocks, in turn
	Tolerance    time.Duration   // of clocks
	StoreTimeout time.Duration
	Binary       string // ratelimitd, built with the tag faults
	Dir          string // for files: the logs of processes are kept, the data of nodes is not
	Logf         func(format string, args ...any)
}

const (
	nodes  = 3
	heapMB = 512
	// settles is the pause after the load, in which reservations end and units are taken
	// back.
	settles = 16 * time.Second
)

// run is the state of a run.
type run struct {
	Options
	policies  []history.Policy
	began     time.Time
	cluster   *localcassandra.Cluster
	nodesDir  string
	processes []*process

	mu      sync.Mutex
	history history.History
}

// Run makes one run and returns its history. It fails if there is no history, or if the run ended early.
func Run(ctx context.Context, opts Options) (*history.History, error) {
	r := &run{Options: opts, policies: schedule.Policies(time.Now())}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.stop())
	}
	err := r.load(ctx)
	if err == nil {
		err = r.finish(ctx)
	}
	err = errors.Join(err, r.stop())
	r.history.Sort()
	return &r.history, err
}

// start starts nodes and processes.
func (r *run) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*localcassandra.StartTimeout)
	defer cancel()
	if r.nodesDir, err = os.MkdirTemp(r.Dir, "nodes-"); err != nil {
		return err
	}
	r.cluster, err = localcassandra.StartCluster(ctx, r.nodesDir, localcassandra.ClusterOptions{
		Nodes: nodes, HeapMB: heapMB, Logf: r.Logf,
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.policiesFile(), schedule.File(r.policies), 0o600); err != nil {
		return err
	}
	if err := r.migrate(ctx); err != nil {
		return err
	}
	for i := range r.Processes {
		p, err := r.newProcess(i, r.Offsets[i%len(r.Offsets)], "--clock-beyond-tolerance=refuse")
		if err != nil {
			return err
		}
		r.processes = append(r.processes, p)
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	return r.warmUp(ctx)
}

func (r *run) policiesFile() string {
	return filepath.Join(r.Dir, fmt.Sprintf("%d-policies.yaml", r.Seed))
}

// stop kills all processes and nodes that still run.
func (r *run) stop() error {
	var errs []error
	for _, p := range r.processes {
		errs = append(errs, p.close())
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Close())
	}
	if r.nodesDir != "" {
		errs = append(errs, os.RemoveAll(r.nodesDir))
	}
	return errors.Join(errs...)
}

// warmUp calls every process until it has decided some takes: then statements are prepared,
// and Java has executed them.
func (r *run) warmUp(ctx context.Context) error {
	const enough = 5
	for _, p := range r.processes {
		for i := range r.policies {
			call := history.Call{Op: history.Take, Demands: []history.Demand{{Policy: r.policies[i].Name, Identifier: "nobody"}}}
			err := poll(ctx, func() error {
				for range enough {
					if a, _ := ask(ctx, p.address(), &call, ""); !a.Decided() {
						return fmt.Errorf("process %d answers %d %s", p.number, a.Status, a.Error)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// load makes calls and faults for as long as the run lasts.
func (r *run) load(ctx context.Context) error {
	r.began = time.Now()
	r.history.Header = history.Header{
		Seed: r.Seed, Started: r.began, Lasts: r.Lasts, Processes: r.Processes, Peers: schedule.Peers(r.Seed),
		Offsets: r.Offsets, Tolerance: r.Tolerance, StoreTimeout: r.StoreTimeout, Policies: r.policies,
	}
	r.Logf("seed %d: %v of calls and faults", r.Seed, r.Lasts)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	atNodes, atProcesses := schedule.Faults(r.Seed, nodes, r.Processes, r.Lasts)
	errs := make([]error, 2)
	watching, watched := context.WithCancel(ctx)
	var watchers, all sync.WaitGroup
	watchers.Go(func() { r.watchStalls(watching) })
	all.Go(func() { errs[0] = r.disturbNodes(ctx, atNodes) })
	all.Go(func() { errs[1] = r.disturbProcesses(ctx, atProcesses) })
	all.Go(func() { r.call(ctx, schedule.Calls(r.Seed, r.policies, r.Processes, r.Lasts)) })
	all.Wait()
	watched()
	watchers.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

// finish reads all counts at the end, and tests wrong clocks.
func (r *run) finish(ctx context.Context) error {
	r.Logf("the calls are over: waiting for %v until all reservations have ended", settles)
	wait(ctx, settles)
	if err := r.cluster.WaitUp(ctx); err != nil {
		return err
	}
	r.askAll(ctx)
	r.awaitOwners(ctx)
	var err error
	r.history.Clocks, err = r.putClocksOff(ctx)
	return errors.Join(err, ctx.Err())
}

func (r *run) now() time.Duration { return time.Since(r.began) }

// waitUntil waits until an instant of the history.
func (r *run) waitUntil(ctx context.Context, at time.Duration) { wait(ctx, at-r.now()) }

// wait waits for d, or until ctx ends.
func wait(ctx context.Context, d time.Duration) { _ = clock.Pause(ctx, d) }

const (
	pollEvery = 100 * time.Millisecond
	pollLimit = 2 * time.Minute // for events that take seconds
)

// poll calls try until it succeeds.
func poll(ctx context.Context, try func() error) error {
	late := time.Now().Add(pollLimit)
	for {
		err := try()
		if err == nil || ctx.Err() != nil || time.Now().After(late) {
			return err
		}
		wait(ctx, pollEvery)
	}
}

const (
	tickEvery = 20 * time.Millisecond
	stallFrom = 100 * time.Millisecond
)

// watchStalls records the times in which the machine did not run even this process.
func (r *run) watchStalls(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	for last := r.now(); ctx.Err() == nil; {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		now := r.now()
		if now-last > stallFrom {
			r.mu.Lock()
			r.history.Stalls = append(r.history.Stalls, history.Span{From: last, Until: now})
			r.mu.Unlock()
		}
		last = now
	}
}
