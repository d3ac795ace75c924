package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
)

// backend is an open store and what belongs to it.
type backend struct {
	store      limiter.Store
	feed       limiter.Feed      // news between instances: the store itself, whatever is around it
	local      limiter.Exclusive // decides while store does not answer; nil: store is here itself
	datacenter string
	onMove     func(func(datacenter string) error)       // has the name told that is not known yet; nil: it is
	members    func(namespace string) *cassandra.Members // of instances that decide together; nil: this one is alone
	canPromise func([]limiter.Policy) error              // nil: whatever they say
	run        stage
	ready      func(context.Context) error // nil: always
	saving     func() embedded.Saving      // nil: nothing is kept on a disk of this machine
	skewed     func() bool                 // nil: never
	close      func()
}

// openStore opens the store that s names, with its tables brought up to date first
// where s says so, or with what its folder holds. Cassandra need not be there yet.
func openStore(
	ctx context.Context, s *settings, policies []limiter.Policy, measured *metrics.Metrics, log *slog.Logger,
) (*backend, error) {
	switch {
	case s.store == storeCassandra && s.dataDir != "":
		return nil, errDataDir
	case s.store == storeCassandra:
		return openCassandra(ctx, s, policies, measured, log)
	case s.dataDir != "":
		return openDataDir(s, measured, log)
	}
	store := embedded.New(&embedded.Options{MaxKeys: s.maxKeys, Now: now})
	return &backend{store: measured.Store(store), feed: store, run: store.Run, close: func() {}}, nil
}

var errDataDir = errors.New("--data-dir is for the store embedded: remove it, for the store cassandra keeps counts itself")

// openDataDir opens the embedded store with what is in its folder.
func openDataDir(s *settings, measured *metrics.Metrics, log *slog.Logger) (*backend, error) {
	file, err := datafile.Open(s.dataDir)
	if err != nil {
		return nil, failure{fmt.Errorf("--data-dir: %w", err)}
	}
	store, err := embedded.Open(&embedded.Options{MaxKeys: s.maxKeys, Now: now, Disk: file, SyncEvery: s.dataSync, Logger: log})
	if err != nil {
		return nil, failure{errors.Join(fmt.Errorf("--data-dir: %w", err), file.Close())}
	}
	log.Info("counts are kept on disk", "folder", s.dataDir, "every", s.dataSync, "keys", store.Len())
	closeFile := func() {
		if err := file.Close(); err != nil {
			log.Error("closing the file of counts", "error", err)
		}
	}
	return &backend{store: measured.Store(store), feed: store, run: store.Run, saving: store.Saving, close: closeFile}, nil
}

// warnings returns what is wrong with b, though it decides.
func (b *backend) warnings() []string {
	if b.saving == nil {
		return nil
	}
	since := b.saving().Since
	if since.IsZero() {
		return nil
	}
	return []string{fmt.Sprintf("counts can't be saved in --data-dir: those since %s would be lost with this process; the log says why",
		since.UTC().Format(time.RFC3339))}
}

func openCassandra(
	ctx context.Context, s *settings, policies []limiter.Policy, measured *metrics.Metrics, log *slog.Logger,
) (*backend, error) {
	if s.clockTolerance == 0 { // which to the store means that nobody looks
		return nil, fmt.Errorf("--clock-tolerance: no clock is within 0s of a cluster's: use 1ms to %v", maxClockTolerance)
	}
	config, err := s.cassandraConfig(log)
	if err != nil {
		return nil, err
	}
	config.UsesLocalLevels = limiter.WithinDatacenter(policies, s.levels(), s.cassandra.serialConsistency)
	config.MigrateFirst = s.migrate
	store, err := cassandra.OpenLater(ctx, config)
	if err != nil {
		return nil, failure{err}
	}
	local := embedded.New(&embedded.Options{MaxKeys: s.maxKeys, Now: now})
	b := &backend{
		store: breaker.New(measured.Store(store), &breaker.Options{Logger: log, OnChange: breakerChanged(measured)}),
		feed:  store, local: local, datacenter: store.Datacenter(), onMove: store.OnMove,
		canPromise: store.CanPromise, ready: store.Ready, close: store.Close,
		run: together(store.Run, local.Run, func(ctx context.Context) error { return publish(ctx, store, measured) }),
	}
	b.members = store.Members
	if s.clockBeyondTolerance == clockRefuse {
		b.skewed, b.ready = store.Skewed, readyInTime(store)
	}
	return b, nil
}

// readyInTime returns what says why store, or its clock, does not serve.
func readyInTime(store *cassandra.Later) func(context.Context) error {
	return func(ctx context.Context) error {
		if store.Skewed() {
			return errSkewed
		}
		return store.Ready(ctx)
	}
}

func breakerChanged(measured *metrics.Metrics) func(closed bool) {
	return func(closed bool) {
		state := metrics.BreakerOpen
		if closed {
			state = metrics.BreakerClosed
		}
		measured.SetBreaker(state)
	}
}

// publishEvery is well within the usual interval between two scrapes.
const publishEvery = 5 * time.Second

// publish keeps the metrics of the cluster's clock and of the sweeper up to date
// until ctx ends.
func publish(ctx context.Context, store *cassandra.Later, measured *metrics.Metrics) error {
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for swept := int64(0); ; {
		if ahead, known := store.ClockOffset(); known {
			measured.SetClockOffset(ahead)
		}
		sweeps := store.Sweeps()
		measured.SetSweepProgress(sweeps.Progress)
		measured.AddSwept(int(sweeps.Deleted - swept))
		swept = sweeps.Deleted
		if !sweeps.Finished.IsZero() {
			measured.SetSweepFinished(sweeps.Finished)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

var errSkewed = errors.New("this machine's clock is farther from the cluster's than --clock-tolerance allows")
