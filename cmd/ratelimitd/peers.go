package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ratelimitd/ratelimitd/internal/cluster"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/metrics"
	"github.com/ratelimitd/ratelimitd/internal/peer"
)

// peerSettings say how other instances reach this one.
type peerSettings struct {
	listen     string // empty: nowhere
	address    string // empty: the one that is listened on
	secretFile string // empty: there is no secret
}

func (s *peerSettings) addFlags(flags *pflag.FlagSet) {
	parsed(flags, &s.listen, "peer-listen", "", "address",
		"at which other instances hand on calls, store cassandra only; port 0 takes any free one (default: nowhere)", address)
	parsed(flags, &s.address, "peer-address", "", "address",
		"under which other instances reach --peer-listen (default: the address that it listens on)", address)
	flags.StringVar(&s.secretFile, "peer-secret-file", "",
		"`file` of a secret that all instances share, 16 bytes or more; needed where other machines reach --peer-listen")
}

// peers are what an instance needs to decide together with others. The zero value is of an
// instance that is alone: its store is its own.
type peers struct {
	cluster  *cluster.Cluster
	engine   *limiter.Engine // that decides; known once it runs
	pool     *peer.Pool
	listener net.Listener // nil: others can't reach this instance
	creds    grpccreds.TransportCredentials
}

// openPeers opens the listener for peers. Nobody joins before run does.
func openPeers(ctx context.Context, s *settings, store *backend, log *slog.Logger) (*peers, error) {
	p := new(peers)
	if store.members == nil {
		if s.peers.listen != "" {
			return nil, errors.New("--peer-listen: instances with the store embedded share nothing: remove it, or use --store cassandra")
		}
		return p, nil
	}
	var err error
	if p.creds, err = s.peers.credentials(); err != nil {
		return nil, err
	}
	advertised := ""
	if s.peers.listen != "" {
		if p.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", s.peers.listen); err != nil {
			return nil, failure{fmt.Errorf("--peer-listen: %w", err)}
		}
		if advertised, err = s.peers.advertise(p.listener.Addr()); err != nil {
			return nil, errors.Join(err, p.listener.Close())
		}
		log.Info("listening for peers", "address", p.listener.Addr().String(), "advertised", advertised)
	}
	members := store.members(s.namespace)
	p.cluster = cluster.New(members, &cluster.Options{
		Address: advertised, Logger: log, LookThrough: members.LookThrough,
		Flush: func(ctx context.Context) { p.engine.Flush(ctx) },
		HandOver: func(ctx context.Context, to cluster.Member, view int64, slices []cluster.Handed) error {
			return p.pool.HandOver(ctx, to, view, slices)
		},
	})
	p.pool = peer.NewPool(p.cluster, p.creds, log)
	return p, nil
}

// credentials returns those by which peers know each other.
func (s *peerSettings) credentials() (grpccreds.TransportCredentials, error) {
	if s.secretFile == "" {
		if s.listen != "" && !isLoopback(s.listen) {
			return nil, fmt.Errorf("--peer-listen %s: other machines can reach it, and nobody would be asked who they are: "+
				"give --peer-secret-file", s.listen)
		}
		return insecure.NewCredentials(), nil
	}
	text, err := os.ReadFile(s.secretFile)
	if err != nil {
		return nil, failure{fmt.Errorf("--peer-secret-file: %w", err)}
	}
	creds, err := peer.SharedSecret([]byte(strings.TrimSpace(string(text))))
	if err != nil {
		return nil, fmt.Errorf("--peer-secret-file: %w", err)
	}
	return creds, nil
}

// advertise returns the address that others are told.
func (s *peerSettings) advertise(listens net.Addr) (string, error) {
	if s.address != "" {
		return s.address, nil
	}
	if tcp, ok := listens.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return "", fmt.Errorf("--peer-address: %s is every address of this machine: say under which one others reach it", listens)
	}
	return listens.String(), nil
}

// owners returns what says who decides for a key; nil: this instance does, for all.
func (p *peers) owners() limiter.Owners {
	if p.cluster == nil {
		return nil
	}
	return peer.NewOwners(p.cluster, p.pool)
}

// metrics returns what publishes what this instance knows of its peers.
func (p *peers) metrics() []prometheus.Collector {
	if p.cluster == nil {
		return nil
	}
	return []prometheus.Collector{metrics.NewMembers(p.cluster.Status, p.pool.Counts)}
}

// run is a member, and decides what is handed on, until its context ends.
func (p *peers) run(engine *limiter.Engine) stage {
	if p.cluster == nil {
		return untilDone
	}
	p.engine = engine
	stages := []stage{p.cluster.Run, p.pool.Run}
	if p.listener != nil {
		server := peer.NewServer(p.listener, p.creds, engine, p.cluster)
		stages = []stage{p.cluster.Run, together(p.pool.Run, server.Run)}
	}
	return func(ctx context.Context) error { return inOrder(ctx, stages...) }
}
