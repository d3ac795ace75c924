package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/policy"
	"github.com/ratelimitd/ratelimitd/client"
)

// peer is a rate limiter to measure.
type peer struct {
	name      string
	cassandra bool
	shared    bool // has a store that several instances share
	batch     int  // decisions a call, by POST /v1/batch; 0: one
	client    bool // asked by the Go client
	limitless bool // allows everything
	start     func(context.Context, *bench, job) (*subject, error)
}

// subject is a peer that runs.
type subject struct {
	open           func(cost int64) (load.Caller, error)
	service, store []int // process ids
	processes      []*process
	clients        []*client.Client // one for each instance; none: called without the client
	after          func() error     // is called after all processes have stopped; may be nil
}

const batchSize = 100

// allPeers are the peers in the order of the table.
func allPeers() []*peer {
	return []*peer{
		{name: "redis_rate", start: startRedisRate, shared: true},
		{name: "redis_rate-wait", start: startRedisRateThatWaits, shared: true},
		{name: "bare", start: startPeer, limitless: true},
		{name: "go-limiter", start: startPeer},
		{name: "embedded", start: startRatelimitd},
		{name: "embedded-batch", start: startRatelimitd, batch: batchSize},
		{name: "embedded-client", start: startRatelimitd, client: true},
		{name: "cassandra", start: startRatelimitd, cassandra: true, shared: true},
		{name: "cassandra-client", start: startRatelimitd, cassandra: true, shared: true, client: true},
	}
}

func names(peers []*peer) (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// skip returns the reason why a peer is left out, or "".
func (p *peer) skip(b *bench) string {
	if p.cassandra && len(b.hosts) == 0 {
		return "RATELIMITD_TEST_CASSANDRA_HOSTS names no Cassandra"
	}
	return ""
}

func startRatelimitd(_ context.Context, b *bench, j job) (*subject, error) {
	args := []string{"serve", "--listen=127.0.0.1:0", "--log-level=error", "--policies=" + b.policyFile(),
		"--store-timeout=5s",  // it is saturated on purpose
		"--max-keys=16777216"} // there are millions of unique keys, and other peers keep all of them
	s := &subject{}
	// Each measurement begins with empty tables. Otherwise the keys of earlier ones would be scanned during it.
	keyspace := fmt.Sprintf("bench_%d_%d", b.report.Started.UnixMilli(), b.started)
	if j.peer.cassandra {
		args = append(args, "--store=cassandra", "--migrate", "--cassandra-hosts="+strings.Join(b.hosts, ","),
			"--cassandra-keyspace="+keyspace, "--consistency=LOCAL_QUORUM", "--peer-listen=127.0.0.1:0")
		s.store = b.cassandra
		s.after = func() error { return dropKeyspace(b.hosts, keyspace) }
	}
	return s, s.serve(b, j, b.program("ratelimitd"), args...)
}

// startPeer starts the peer whose program has its name without the hyphen.
func startPeer(_ context.Context, b *bench, j job) (*subject, error) {
	s := &subject{}
	var limits []string
	if !j.peer.limitless {
		limits = policyFlags(b.policies)
	}
	return s, s.serve(b, j, b.program(strings.ReplaceAll(j.peer.name, "-", "")), limits...)
}

func startRedisRate(ctx context.Context, b *bench, j job) (*subject, error) {
	s, address, err := b.onRedis(ctx)
	if err != nil {
		return nil, err
	}
	return s, s.serve(b, j, b.program("redisrate"), append(policyFlags(b.policies), "-redis", address)...)
}

// startRedisRateThatWaits starts redis_rate on a Redis with two replicas, one of which must have each count: as many
// copies as a quorum of three nodes of Cassandra.
func startRedisRateThatWaits(ctx context.Context, b *bench, j job) (*subject, error) {
	s, address, err := b.onRedis(ctx)
	if err != nil {
		return nil, err
	}
	for range 2 {
		if err := s.addReplica(ctx, b, address); err != nil {
			return nil, errors.Join(err, s.stop())
		}
	}
	return s, s.serve(b, j, b.program("redisrate"), append(policyFlags(b.policies), "-redis", address, "-wait", "1")...)
}

// onRedis returns a subject whose store is a Redis, and the address of that.
func (b *bench) onRedis(ctx context.Context) (s *subject, address string, err error) {
	redis, address, err := b.startRedis(ctx)
	if err != nil {
		return nil, "", err
	}
	return &subject{store: []int{redis.pid()}, processes: []*process{redis}}, address, nil
}

// addReplica starts a replica of the Redis at address.
func (s *subject) addReplica(ctx context.Context, b *bench, address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	replica, at, err := b.startRedis(ctx, "--replicaof", host+" "+port)
	if err != nil {
		return err
	}
	s.store, s.processes = append(s.store, replica.pid()), append(s.processes, replica)
	return replica.ready(func() error { return inStep(ctx, at) })
}

func policyFlags(policies policy.List) (flags []string) {
	for _, p := range policies {
		flags = append(flags, "-policy", p.String())
	}
	return flags
}

// serve starts the instances of s, and stops all of s if that fails.
func (s *subject) serve(b *bench, j job, program string, args ...string) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	services, open := map[string]*process{}, []func(int64) (load.Caller, error)(nil)
	for range j.instances {
		service, err := b.start(program, args...)
		if err != nil {
			return err
		}
		s.service, s.processes = append(s.service, service.pid()), append(s.processes, service)
		address, err := service.listening()
		if err != nil {
			return err
		}
		caller, err := s.caller(b, j, address)
		if err != nil {
			return err
		}
		services[address], open = service, append(open, caller)
	}
	s.open = load.RoundRobin(open)
	if !j.peer.cassandra {
		return nil
	}
	addresses := slices.Collect(maps.Keys(services))
	return services[addresses[0]].ready(func() error { return joinedAll(addresses) })
}

// caller returns a function that opens callers of the instance at address.
func (s *subject) caller(b *bench, j job, address string) (func(int64) (load.Caller, error), error) {
	if j.peer.client {
		return s.byClient(address, j.policy.Name)
	}
	return load.Target{
		Address: address, Policy: j.policy.Name, Prefix: prefix, Batch: j.peer.batch,
		Lifetime: b.warmUp + max(b.lasts(j), b.warm, b.settling) + patience,
	}.Open, nil
}

// prefix begins all identifiers, like those of phone numbers.
const prefix = "+49151"

// patience is how long the last answers may take.
const patience = 30 * time.Second

// stop ends the processes, the last started first.
func (s *subject) stop() (err error) {
	for _, c := range s.clients {
		err = errors.Join(err, c.Close())
	}
	for i := range s.processes {
		err = errors.Join(err, s.processes[len(s.processes)-1-i].stop())
	}
	if s.after != nil {
		err = errors.Join(err, s.after())
	}
	return err
}
