package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/ratelimitd/ratelimitd/bench/load"
	"github.com/ratelimitd/ratelimitd/bench/policy"
	"github.com/ratelimitd/ratelimitd/client"
)

// peer is one way of deciding.
type peer struct {
	name      string
	policies  string // file of ratelimitd's policies; empty: policies.yaml
	cassandra bool
	batch     int  // decisions a call, by POST /v1/batch; 0: one
	client    bool // asked by the Go client
	limitless bool // allows everything
	leases    bool // counts units of large limits ahead
	behind    bool // no call waits for the store
	start     func(context.Context, *bench, job) (*subject, error)
}

// subject is a peer that runs.
type subject struct {
	open           func(cost int64) (load.Caller, error)
	service, store []int // process ids
	processes      []*process
	client         *client.Client // nil: asked without one
}

const batchSize = 100

// allPeers are those there are, in the order of the table.
func allPeers() []*peer {
	return []*peer{
		{name: "redis_rate", start: startRedisRate},
		{name: "bare", start: startPeer, limitless: true},
		{name: "go-limiter", start: startPeer},
		{name: "embedded", start: startRatelimitd},
		{name: "embedded-batch", start: startRatelimitd, batch: batchSize},
		{name: "embedded-client", start: startRatelimitd, client: true},
		{name: "embedded-local", start: startRatelimitd, policies: "policies-local.yaml"},
		{name: "cassandra", start: startRatelimitd, cassandra: true, leases: true},
		{name: "cassandra-client", start: startRatelimitd, cassandra: true, client: true, leases: true},
		{name: "cassandra-rows", start: startRatelimitd, cassandra: true, policies: "policies-rows.yaml", leases: true},
		{name: "cassandra-rows-client", start: startRatelimitd, cassandra: true, client: true, policies: "policies-rows.yaml", leases: true},
		{name: "cassandra-local", start: startRatelimitd, cassandra: true, policies: "policies-local.yaml", leases: true, behind: true},
	}
}

func names(peers []*peer) (names []string) {
	for _, p := range peers {
		names = append(names, p.name)
	}
	return names
}

// file returns the peer's policy file.
func (p *peer) file(b *bench) string {
	if p.policies == "" {
		return filepath.Join(b.dir, "policies.yaml")
	}
	return filepath.Join(b.dir, p.policies)
}

// has says whether the peer knows a policy of that name.
func (p *peer) has(name string, b *bench) bool {
	own, err := policy.Read(p.file(b))
	return err == nil && slices.ContainsFunc(own, func(p policy.Policy) bool { return p.Name == name })
}

// skip returns why a peer is left out, or nothing.
func (p *peer) skip(ctx context.Context, b *bench) string {
	if p.cassandra && len(b.hosts) == 0 {
		return "RATELIMITD_TEST_CASSANDRA_HOSTS names no Cassandra"
	}
	out, err := exec.CommandContext(ctx, b.program("ratelimitd"), "policies", "lint", p.file(b)).CombinedOutput()
	if err != nil {
		reason, _, _ := strings.Cut(string(out), "\n")
		return strings.TrimPrefix(reason, b.dir+"/")
	}
	return ""
}

func startRatelimitd(_ context.Context, b *bench, j job) (*subject, error) {
	timeout := "5s" // it is saturated on purpose
	if j.peer.behind {
		timeout = "1s"
	}
	args := []string{"serve", "--listen=127.0.0.1:0", "--log-level=error", "--policies=" + j.peer.file(b), "--store-timeout=" + timeout,
		"--max-keys=16777216"} // unique keys come by the million, and others keep all of them
	s := &subject{}
	if j.peer.cassandra {
		args = append(args, "--store=cassandra", "--migrate", "--cassandra-hosts="+strings.Join(b.hosts, ","),
			"--cassandra-keyspace=bench", "--consistency=LOCAL_QUORUM",
			fmt.Sprintf("--namespace=bench-%d-%d", b.report.Started.UnixMilli(), b.started))
		s.store = b.cassandra
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
	redis, address, err := b.startRedis(ctx)
	if err != nil {
		return nil, err
	}
	s := &subject{store: []int{redis.pid()}, processes: []*process{redis}}
	return s, s.serve(b, j, b.program("redisrate"), append(policyFlags(b.policies), "-redis", address)...)
}

func policyFlags(policies policy.List) (flags []string) {
	for _, p := range policies {
		flags = append(flags, "-policy", p.String())
	}
	return flags
}

// serve starts the service of s, and stops all of s if that fails.
func (s *subject) serve(b *bench, j job, program string, args ...string) error {
	service, err := b.start(program, args...)
	if err != nil {
		return errors.Join(err, s.stop())
	}
	s.service, s.processes = []int{service.pid()}, append(s.processes, service)
	address, err := service.listening()
	if err != nil {
		return errors.Join(err, s.stop())
	}
	if j.peer.client {
		if err := s.ask(address, j.policy.Name); err != nil {
			return errors.Join(err, s.stop())
		}
		return nil
	}
	s.open = func(cost int64) (load.Caller, error) {
		return load.Target{
			Address: address, Policy: j.policy.Name, Prefix: prefix, Batch: j.peer.batch,
			Lifetime: b.warmUp + max(b.lasts(j), firstSettling*b.settling) + patience,
		}.Open(cost)
	}
	return nil
}

// prefix is how all identifiers begin, as phone numbers do.
const prefix = "+49151"

// patience is how long an answer may take at the end.
const patience = 30 * time.Second

// stop ends the processes, the last started first.
func (s *subject) stop() (err error) {
	if s.client != nil {
		err = s.client.Close()
	}
	for i := range s.processes {
		err = errors.Join(err, s.processes[len(s.processes)-1-i].stop())
	}
	return err
}
