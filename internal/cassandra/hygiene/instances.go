package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

const (
	instanceCount = 3

	storeTimeout   = time.Second // generous: the machine is shared with the node
	clockTolerance = 100 * time.Millisecond

	sweepAge   = 30 * time.Second      // for an hour
	sweepPause = 25 * time.Millisecond // for 2 s: a pass takes 26 s, for 34 minutes
)

// The policies: every algorithm and every way to count, in windows of seconds that stand
// for hours.
const (
	policyLog      = "log"
	policyAttempts = "attempts"
	policyFixed    = "fixed"
	policyTail     = "tail"
	policyWindow   = "window"
	policyBoth     = "both"
	policyBucket   = "bucket"
	policyEntered  = "entered"
	policyLeaky    = "leaky"
	policySerial   = "serial"
	policyBlock    = "block"
	policyBan      = "ban"
)

var policies = []policy.Policy{
	{Name: policyLog, Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: 5 * time.Second}}},
	{Name: policyAttempts, Count: policy.CountAll, Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 10, Window: 5 * time.Second}}},
	{Name: policyFixed, Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 20, Window: time.Second}}},
	{Name: policyTail, Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 20, Window: 2 * time.Second}}},
	{Name: policyWindow, Limits: []policy.Limit{{Algorithm: "sliding-window", Limit: 20, Window: 5 * time.Second}}},
	{Name: policyBoth, Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 5, Window: 2 * time.Second},
		{Algorithm: "fixed-window", Limit: 10, Window: 5 * time.Second},
	}},
	{Name: policyBucket, Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 10, Window: time.Second}}},
	{Name: policyLeaky, Limits: []policy.Limit{{Algorithm: "leaky-bucket", Limit: 10, Window: time.Second}}},
	{Name: policyEntered, Limits: []policy.Limit{{Algorithm: "conversion", Limit: 10, Window: 5 * time.Second, Probe: time.Second}}},
	{Name: policySerial, Guarantee: policy.GuaranteeSerial, Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 10, Window: 5 * time.Second},
	}},
	{Name: policyBlock, BlockFor: 2 * time.Second, Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 3, Window: 2 * time.Second},
	}},
	{Name: policyBan, BlockFor: 3 * time.Minute, Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 1, Window: time.Second},
	}},
}

// instances are as many processes' worth of engine and store, in this process.
type instances struct {
	stores  []*cassandra.Store
	engines []*limiter.Engine
}

func openInstances(ctx context.Context, n *node) (*instances, error) {
	all := &instances{}
	for range instanceCount {
		store, err := cassandra.Open(ctx, n.config)
		if err != nil {
			all.close()
			return nil, err
		}
		all.stores = append(all.stores, store)
		engine := limiter.New(store, &limiter.Options{
			ClockTolerance: clockTolerance, StoreTimeout: storeTimeout, Datacenter: store.Datacenter(), Skewed: store.Skewed, Feed: store,
		})
		if err := engine.SetPolicies(policies); err != nil {
			all.close()
			return nil, err
		}
		all.engines = append(all.engines, engine)
	}
	return all, nil
}

// run does what instances do beside decisions, sweeping among it, until ctx ends.
func (i *instances) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for at := range i.engines {
		g.Go(func() error { return i.stores[at].Run(ctx) })
		g.Go(func() error { return i.engines[at].Run(ctx) })
	}
	return g.Wait()
}

func (i *instances) close() {
	for _, store := range i.stores {
		store.Close()
	}
}

// sweeps returns how far whoever sweeps is, and how many keys all have swept.
func (i *instances) sweeps() (progress float64, deleted int64) {
	for _, store := range i.stores {
		s := store.Sweeps()
		progress = max(progress, s.Progress)
		deleted += s.Deleted
	}
	return progress, deleted
}
