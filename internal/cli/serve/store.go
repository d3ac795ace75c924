package serve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/members"
	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/policystore"
)

// backend is an open store with its resources.
type backend struct {
	store      store.Store
	feed       store.Feed      // news between instances, from the store itself without its decorators
	local      store.Exclusive // decides while store does not answer; nil: store is in this process
	datacenter string
	onMove     func(func(datacenter string) error)      // calls back once the data centre is known; nil: it is known
	members    func(namespace string) *members.Members  // of instances that decide together; nil: this one is alone
	settings   func(namespace string) *members.Settings // where instances publish theirs; nil: this one is alone
	policies   policystore.Store                        // keeps versions of the policies
	canPromise func([]policy.Policy) error              // nil: it can promise all
	run        stage
	ready      func(context.Context) error // nil: always
	saving     func() embedded.Saving      // nil: nothing is kept on a disk of this machine
	skewed     func() bool                 // nil: never
	close      func()
}

// openStore opens the store that the settings name. It migrates Cassandra's tables first if they say so, and loads the
// data folder of an embedded store. Cassandra need not be reachable yet.
func (s *service) openStore(ctx context.Context, policies []policy.Policy) (*backend, error) {
	switch given := s.settings; {
	case given.Store == settings.StoreCassandra && given.DataDir != "":
		return nil, errDataDir
	case given.Store == settings.StoreCassandra:
		return s.openCassandra(ctx, policies)
	case given.DataDir != "":
		return s.openDataDir()
	}
	store := embedded.New(&embedded.Options{MaxKeys: s.settings.MaxKeys, Now: s.process.Now})
	return &backend{
		store: s.measured.Store(store), feed: store, run: store.Run, policies: new(policystore.Memory), close: func() {},
	}, nil
}

var errDataDir = errors.New("--data-dir is for the store embedded: remove it, for the store cassandra keeps counts itself")

// openDataDir opens the embedded store with the data in its folder.
func (s *service) openDataDir() (*backend, error) {
	given := s.settings
	file, err := datafile.Open(given.DataDir)
	if err != nil {
		return nil, command.Fail(fmt.Errorf("--data-dir: %w", err))
	}
	store, err := embedded.Open(&embedded.Options{
		MaxKeys: given.MaxKeys, Now: s.process.Now, Disk: file, SyncEvery: given.DataSync, Logger: s.log,
	})
	if err != nil {
		return nil, command.Fail(errors.Join(fmt.Errorf("--data-dir: %w", err), file.Close()))
	}
	s.log.Info("counts are kept on disk", "folder", given.DataDir, "every", given.DataSync, "keys", store.Len())
	closeFile := func() {
		if err := file.Close(); err != nil {
			s.log.Error("closing the file of counts", "error", err)
		}
	}
	return &backend{
		store: s.measured.Store(store), feed: store, run: store.Run, saving: store.Saving, policies: file.Policies(), close: closeFile,
	}, nil
}

// warnings returns problems of the store that do not prevent decisions.
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

// openCassandra opens the store whose tables instances share.
func (s *service) openCassandra(ctx context.Context, policies []policy.Policy) (*backend, error) {
	given := s.settings
	if given.ClockTolerance == 0 { // by which the store would not check the clock
		return nil, fmt.Errorf("--clock-tolerance: no clock is within 0s of a cluster's: use 1ms to %v", settings.MaxClockTolerance)
	}
	config, err := given.CassandraConfig(s.log, s.process.Now)
	if err != nil {
		return nil, err
	}
	if config.TLS != nil && len(config.TLS.Certificates) > 0 {
		s.measured.SetExpiry(metrics.CertificateCassandra, config.TLS.Certificates[0].Leaf.NotAfter)
	}
	s.measured.SetExpiry(metrics.CertificateCassandraCA, given.Cassandra.AuthoritiesExpire)
	config.UsesLocalLevels = policy.WithinDatacenter(policies, given.Levels(), given.SerialConsistency)
	config.MigrateFirst, config.Traced = given.Migrate, s.telemetry.Tracer() != nil
	store, err := cassandra.OpenLater(ctx, config)
	if err != nil {
		return nil, command.Fail(err)
	}
	local := embedded.New(&embedded.Options{MaxKeys: given.MaxKeys, Now: s.process.Now})
	b := &backend{
		store: breaker.New(s.measured.Store(store), &breaker.Options{Logger: s.log, OnChange: s.measured.SetBreaker}),
		feed:  store, local: local, datacenter: store.Datacenter(), onMove: store.OnMove,
		policies:   store.Policies(given.Namespace),
		canPromise: store.CanPromise, ready: store.Ready, close: store.Close, members: store.Members, settings: store.Settings,
		run: together(store.Run, local.Run,
			func(ctx context.Context) error { return publish(ctx, store, s.measured) },
			func(ctx context.Context) error {
				return watchCaveats(ctx, store, given.AcceptedCaveats, s.measured, s.log)
			},
		),
	}
	if given.ClockBeyondTolerance == settings.ClockRefuse {
		b.skewed, b.ready = store.Skewed, readyInTime(store)
	}
	return b, nil
}

// readyInTime returns a check that fails while store does not answer, or this machine's clock is wrong.
func readyInTime(store *cassandra.Later) func(context.Context) error {
	return func(ctx context.Context) error {
		if store.Skewed() {
			return errSkewed
		}
		return store.Ready(ctx)
	}
}

// publishEvery is well within the usual interval between two scrapes.
const publishEvery = 5 * time.Second

// publish updates the metrics of the cluster's clock and of the sweeper until ctx ends.
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
