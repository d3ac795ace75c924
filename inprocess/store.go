package inprocess

import (
	"context"
	"errors"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/members"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/embedded/datafile"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// backend is an open store with its resources.
type backend struct {
	store      store.Store
	feed       store.Feed
	local      store.Exclusive // decides while a shared store does not answer; nil: store is not shared
	levels     policy.Consistency
	datacenter string
	onMove     func(func(datacenter string) error) // calls its argument once the data centre's name is known; nil: it is known
	ready      func(context.Context) error         // nil: the store always answers
	canPromise func([]policy.Policy) error         // nil: the store can keep any promise
	members    *membership                         // nil: no other process shares the store
	settings   *members.Settings                   // the members' settings
	skewed     func() bool
	run        []func(context.Context) error
	close      func() error
}

// open opens the store that o selects.
func (o *Options) open(ctx context.Context, policies []policy.Policy) (*backend, error) {
	switch {
	case o.Cassandra != nil:
		return o.openCassandra(ctx, policies)
	case o.DataDir != "":
		return o.openDataDir()
	}
	s := embedded.New(&embedded.Options{MaxKeys: o.MaxKeys, Now: o.Now})
	return &backend{store: s, feed: s, run: []func(context.Context) error{s.Run}, close: func() error { return nil }}, nil
}

func (o *Options) openDataDir() (*backend, error) {
	file, err := datafile.Open(o.DataDir)
	if err != nil {
		return nil, err
	}
	s, err := embedded.Open(&embedded.Options{MaxKeys: o.MaxKeys, Now: o.Now, Disk: file, Logger: o.Logger})
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &backend{store: s, feed: s, run: []func(context.Context) error{s.Run}, close: file.Close}, nil
}

func (o *Options) openCassandra(ctx context.Context, policies []policy.Policy) (*backend, error) {
	levels, err := o.levels()
	if err != nil {
		return nil, err
	}
	c := o.Cassandra
	s, err := cassandra.OpenLater(ctx, cassandra.Config{
		Hosts: c.Hosts, Keyspace: c.Keyspace, Datacenter: c.Datacenter, Username: c.Username, Password: c.Password, TLS: c.TLS,
		Timeout: o.StoreTimeout, Consistency: levels, SerialConsistency: c.SerialConsistency, ClockTolerance: o.ClockTolerance,
		UsesLocalLevels: policy.WithinDatacenter(policies, levels, policy.Level(c.SerialConsistency)),
		Logger:          o.Logger,
	})
	if err != nil {
		return nil, err
	}
	joined, err := o.join(s.Members(o.Namespace), s.Skewed)
	if err != nil {
		s.Close()
		return nil, err
	}
	local := embedded.New(&embedded.Options{MaxKeys: o.MaxKeys})
	return &backend{
		store: breaker.New(s, &breaker.Options{Logger: o.Logger}), feed: s, local: local,
		levels: levels, datacenter: s.Datacenter(), onMove: s.OnMove, canPromise: s.CanPromise, skewed: s.Skewed, ready: s.Ready,
		members: joined, settings: s.Settings(o.Namespace),
		run:   []func(context.Context) error{s.Run, local.Run},
		close: func() error { s.Close(); return nil },
	}, nil
}

// runAfter runs first and the background work of s. stop ends first, and then the others; it waits for all and returns
// their errors.
func (s *backend) runAfter(first func(context.Context) error) (stop func() error) {
	firstCtx, stopFirst := context.WithCancel(context.Background())
	ctx, stopOthers := context.WithCancel(context.Background())
	var one, others sync.WaitGroup
	errs := make([]error, len(s.run)+1)
	one.Go(func() { errs[len(s.run)] = first(firstCtx) })
	for i, run := range s.run {
		others.Go(func() { errs[i] = run(ctx) })
	}
	return func() error {
		stopFirst()
		one.Wait()
		stopOthers()
		others.Wait()
		return errors.Join(errs...)
	}
}
