package inprocess

import (
	"context"
	"fmt"
	"sync"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// members is what a process needs to decide together with others that share its Cassandra. It owns
// no keys while there are others, as they could not reach it: it hands calls on.
type members struct {
	cluster *cluster.Cluster
	engine  *limiter.Engine // that decides; known once it runs
	pool    *peer.Pool
}

// join returns what makes this process a member of those that are kept in store, while its clock is not skewed.
func (o *Options) join(store *cassandra.Members, skewed func() bool) (*members, error) {
	creds := insecure.NewCredentials()
	if len(o.Cassandra.PeerSecret) > 0 {
		var err error
		if creds, err = peer.SharedSecret(o.Cassandra.PeerSecret); err != nil {
			return nil, fmt.Errorf("options: PeerSecret: %w", err)
		}
	}
	m := new(members)
	m.cluster = cluster.New(store, &cluster.Options{
		Logger: o.Logger, LookThrough: store.LookThrough, StandAside: skewed,
		Flush: func(ctx context.Context) { m.engine.Flush(ctx) },
		HandOver: func(ctx context.Context, to cluster.Member, view int64, slices []cluster.Handed) error {
			return m.pool.HandOver(ctx, to, view, slices)
		},
	})
	m.pool = peer.NewPool(m.cluster, creds, o.Logger)
	return m, nil
}

// owners returns what says who decides for a key; nil: this process does, for all.
func (m *members) owners() limiter.Owners {
	if m == nil {
		return nil
	}
	return peer.NewOwners(m.cluster, m.pool)
}

// around returns what runs engine as that of a member, which this process is no more when that is told
// to end.
func (m *members) around(engine *limiter.Engine) func(context.Context) error {
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
		_ = m.cluster.Run(ctx) // it returns nil
		stop()
		others.Wait()
		return failed
	}
}
