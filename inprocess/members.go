package inprocess

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/agreement"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/members"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// membership has the parts by which a process decides together with the others that share its Cassandra. It owns no
// keys while there are others, which could not reach it, and forwards calls to them.
type membership struct {
	cluster *cluster.Cluster
	engine  *limiter.Engine // set before it runs
	pool    *peer.Pool
	log     *slog.Logger
	agreed  *agreement.Agreement // on settings; set once policies are in force
}

// join returns the membership of this process in the cluster that store keeps. It takes no part while skewed returns
// true.
func (o *Options) join(store *members.Members, skewed func() bool) (*membership, error) {
	creds := insecure.NewCredentials()
	if len(o.Cassandra.PeerSecret) > 0 {
		var err error
		if creds, err = peer.SharedSecret(o.Cassandra.PeerSecret); err != nil {
			return nil, fmt.Errorf("options: PeerSecret: %w", err)
		}
	}
	m := &membership{log: o.Logger}
	m.cluster = cluster.New(store, &cluster.Options{
		Logger: o.Logger, LookThrough: store.LookThrough, StandAside: skewed,
		Flush: func(ctx context.Context) { m.engine.Flush(ctx) },
		Unload: func(ctx context.Context, moves func(int) bool) error {
			return m.engine.Unload(ctx, peer.KeysOf(moves))
		},
		MayUnload: func() bool { return m.engine.MayUnload() },
		HandOver: func(ctx context.Context, to cluster.Member, view int64, slots []cluster.Handed) error {
			return m.pool.HandOver(ctx, to, view, slots)
		},
	})
	m.pool = peer.NewPool(m.cluster, creds, o.Logger)
	return m, nil
}

// owners returns the owners of keys; nil means that this process decides for all.
func (m *membership) owners() demand.Owners {
	if m == nil {
		return nil
	}
	return peer.NewOwners(m.cluster, m.pool)
}

// run takes part in the cluster until ctx ends, once the members agree on settings. If they don't, this process decides
// nothing, and run returns the reason when ctx ends.
func (m *membership) run(ctx context.Context) error {
	switch err := m.agreed.Await(ctx); {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		m.log.Error("this process decides nothing", "error", err)
		<-ctx.Done()
		return err
	}
	var agreeing sync.WaitGroup
	agreeing.Go(func() { _ = m.agreed.Run(ctx) })
	_ = m.cluster.Run(ctx) // it returns nil, as agreed.Run does
	agreeing.Wait()
	return nil
}

// agree compares this process's settings with those of the other members. The error says that it has another hash key.
// If the store does not answer, run does so before this process decides.
func (o *Options) agree(ctx context.Context, s *backend, engine *limiter.Engine) error {
	if s.members == nil {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	s.members.agreed = agreement.New(s.settings, agreement.Statement{
		ID: string(cluster.NewID()), Name: fmt.Sprintf("%s, process %d", host, os.Getpid()),
		HashKeys: agreement.HashKeysOf(o.hashKeys()), Settings: o.common(s),
	}, func(said *agreement.Statement) { said.Policies = agreement.PoliciesOf(engine, s.datacenter) }, o.Logger)
	if err := s.members.agreed.Join(ctx); errors.Is(err, agreement.ErrHashKey) {
		return err
	}
	return nil
}

// common returns the settings that all members must have in common, by the names of servers' flags.
func (o *Options) common(s *backend) map[string]string {
	return map[string]string{
		"clock-tolerance":        o.ClockTolerance.String(),
		"clock-beyond-tolerance": "refuse",
		"consistency":            string(s.levels.Read),
		"serial-consistency":     o.Cassandra.SerialConsistency,
		"store-timeout":          o.StoreTimeout.String(),
		"sync-interval":          o.SyncInterval.String(),
		"policies":               agreement.PoliciesOfItsOwn,
	}
}

// around returns a function that runs engine as a member's until its context ends.
func (m *membership) around(engine *limiter.Engine) func(context.Context) error {
	if m == nil {
		return engine.Run
	}
	m.engine = engine
	return func(ctx context.Context) error {
		later, stop := context.WithCancel(context.WithoutCancel(ctx))
		var others sync.WaitGroup
		var failed error
		others.Go(func() { failed = engine.Run(later) })
		others.Go(func() { _ = m.pool.Run(later) })
		refused := m.run(ctx)
		stop()
		others.Wait()
		return errors.Join(refused, failed)
	}
}
