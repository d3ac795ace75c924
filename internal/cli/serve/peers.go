package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cli/command"
	"github.com/ratelimitd/ratelimitd/internal/cli/settings"
	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/grpcbound"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// peers are the parts by which an instance decides together with others. The zero value suits an instance that has a
// store of its own.
type peers struct {
	cluster  *cluster.Cluster
	engine   *limiter.Engine // that decides; set before run
	pool     *peer.Pool
	listener net.Listener // nil: others can't reach this instance
	address  string       // under which others reach it
	creds    grpccreds.TransportCredentials
}

// openPeers opens the listener for peers. The instance joins the others in run.
func openPeers(ctx context.Context, s *settings.Settings, store *backend, log *slog.Logger) (*peers, error) {
	p := new(peers)
	if store.members == nil {
		if s.Peers.Listen != "" {
			return nil, errors.New("--peer-listen: instances with the store embedded share nothing: remove it, or use --store cassandra")
		}
		return p, nil
	}
	var err error
	if p.creds, err = peerCredentials(&s.Peers, log); err != nil {
		return nil, err
	}
	if s.Peers.Listen != "" {
		if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.Peers.Listen); err != nil {
			return nil, command.Fail(fmt.Errorf("--peer-listen: %w", err))
		}
		if p.address, err = addressForPeers(&s.Peers, p.listener.Addr()); err != nil {
			return nil, errors.Join(err, p.listener.Close())
		}
		log.Info("listening for peers", "address", p.listener.Addr().String(), "advertised", p.address)
	}
	members := store.members(s.Namespace)
	p.cluster = cluster.New(members, &cluster.Options{
		Address: p.address, Logger: log, LookThrough: members.LookThrough, StandAside: store.skewed,
		Load: p.load(s.MaxKeys), AllOwn: s.Peers.Owners == settings.OwnersAll,
		Flush: func(ctx context.Context) { p.engine.Flush(ctx) },
		Unload: func(ctx context.Context, moves func(int) bool) error {
			return p.engine.Unload(ctx, peer.KeysOf(moves))
		},
		MayUnload: func() bool { return p.engine.MayUnload() },
		HandOver: func(ctx context.Context, to cluster.Member, view int64, slots []cluster.Handed) error {
			return p.pool.HandOver(ctx, to, view, slots)
		},
	})
	p.pool = peer.NewPool(p.cluster, p.creds, log)
	store.ready = p.readyAfter(store.ready)
	return p, nil
}

var errNoMember = errors.New("this instance is not among those that decide yet, or no longer: it joins them")

// readyAfter returns a check that fails while store's does, or while no view lists this instance.
func (p *peers) readyAfter(store func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := store(ctx); err != nil {
			return err
		}
		if known := p.cluster.Status(); !known.View.Lists(known.Self) {
			return errNoMember
		}
		return nil
	}
}

// warnings returns problems with connections to others, which do not keep this instance from deciding.
func (p *peers) warnings() []string {
	if p.cluster == nil {
		return nil
	}
	known := p.cluster.Status()
	if len(known.Unreached) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%d of %d members are not reached from here, so calls for their keys can't be handed on; the log says why",
		len(known.Unreached), len(known.View.Members))}
}

// peerCredentials returns the credentials by which peers authenticate each other.
func peerCredentials(s *settings.Peers, log *slog.Logger) (grpccreds.TransportCredentials, error) {
	if s.SecretFile == "" {
		if s.Listen != "" && !isLoopback(s.Listen) {
			return nil, fmt.Errorf("--peer-listen %s: other machines can reach it, without authentication: "+
				"give --peer-secret-file", s.Listen)
		}
		return insecure.NewCredentials(), nil
	}
	secret, err := command.ReadSecret("--peer-secret-file", s.SecretFile, log)
	if err != nil {
		return nil, command.Fail(err)
	}
	creds, err := peer.SharedSecret([]byte(secret))
	if err != nil {
		return nil, fmt.Errorf("--peer-secret-file: %w", err)
	}
	return creds, nil
}

// addressForPeers returns the address that is published to other instances.
func addressForPeers(s *settings.Peers, listens net.Addr) (string, error) {
	if s.Address != "" {
		return s.Address, nil
	}
	if tcp, ok := listens.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return "", fmt.Errorf("--peer-address: %s is every address of this machine: say under which one others reach it", listens)
	}
	return listens.String(), nil
}

// owners returns the owners of keys; nil if this instance owns all.
func (p *peers) owners() demand.Owners {
	if p.cluster == nil {
		return nil
	}
	return peer.NewOwners(p.cluster, p.pool)
}

// metrics returns collectors of the state of peers.
func (p *peers) metrics() []prometheus.Collector {
	if p.cluster == nil {
		return nil
	}
	return []prometheus.Collector{metrics.NewMembers(p.cluster.Status, p.pool.Counts)}
}

// runPeers returns a stage that joins the other members once settings are agreed on, decides calls that they hand on, and
// reports counts to them.
func (s *service) runPeers() stage {
	p := s.peers
	if p.cluster == nil {
		return untilDone
	}
	member, calls := afterAwait(s.agreed, together(p.cluster.Run, s.agreed.Run)), p.pool.Run
	if p.listener != nil {
		server := peer.NewServer(p.listener, p.creds, s.engine, p.cluster, s.telemetry.Tracer())
		server.Reports = s.report
		server.TurnedAway = metrics.NewPeerConnections(s.registry, server.Connections, grpcbound.Bounds)
		calls = together(p.pool.Run, server.Run)
	}
	return func(ctx context.Context) error { return inOrder(ctx, member, calls) }
}
