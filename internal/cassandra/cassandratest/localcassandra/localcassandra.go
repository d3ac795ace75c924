// Package localcassandra starts Apache Cassandra on this machine, for tests and for trying things out: as containers of a
// Docker engine, or as plain Java processes from the jars on Maven Central. The nodes end with the process that started
// them, even when that process is killed.
//
// It does not know the testing package, keyspaces or rate limits, and it is not for running Cassandra in
// production.
package localcassandra

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// The environment variables that select a Cassandra.
const (
	// EnvHosts names nodes that run already, as a comma-separated list of host[:port]. Nothing is started when it is set.
	EnvHosts = "RATELIMITD_TEST_CASSANDRA_HOSTS"
	// EnvMode selects how a node is started: docker, java, or auto.
	EnvMode = "RATELIMITD_TEST_CASSANDRA"
)

// StartTimeout bounds the start of one node, including its software: a first run downloads a container
// image or a hundred jars.
const StartTimeout = 10 * time.Minute

// ErrUnavailable is wrapped by the errors of Start if this machine can't start Cassandra at all. The error says
// what to install.
var ErrUnavailable = errors.New("no Cassandra can be started here")

// A Mode is a way of starting Cassandra. Its zero value is Auto.
type Mode int

// The modes: Auto is Docker if an engine answers, else Java.
const (
	Auto Mode = iota
	Docker
	Java
)

// ParseMode reads docker, java, auto, or the empty string, which means auto.
func ParseMode(s string) (Mode, error) {
	switch s {
	case "", "auto":
		return Auto, nil
	case "docker":
		return Docker, nil
	case "java":
		return Java, nil
	}
	return Auto, fmt.Errorf("%s=%q: want docker, java or auto", EnvMode, s)
}

// Options are the options of Start. The zero value is one node, with Docker or else with Java.
type Options struct {
	// Mode is the way of starting.
	Mode Mode
	// Nodes is how many nodes to start; 0 means 1.
	Nodes int
	// Tuned nodes have the settings that docs/howto/cassandra.md recommends, and a larger heap. They are for measuring, not for
	// losing nodes.
	Tuned bool
	// Logf logs the progress. It may be nil.
	Logf func(format string, args ...any)
}

// Running is Cassandra as started by Start.
type Running struct {
	hosts []string
	stop  func() error
}

// Start starts Cassandra and returns when every node answers CQL. The caller stops it. Under Auto a Docker engine that
// answers but can't start the node (because it has no image and no registry, say) is logged, and Java is used instead.
func Start(ctx context.Context, opts Options) (*Running, error) {
	opts.Nodes = max(opts.Nodes, 1)
	if opts.Logf == nil {
		opts.Logf = func(string, ...any) {}
	}
	switch opts.Mode {
	case Docker:
		return startDocker(ctx, opts)
	case Java:
		return startJava(ctx, opts)
	}
	byDocker, dockerErr := startDocker(ctx, opts)
	if dockerErr == nil {
		return byDocker, nil
	}
	if ctx.Err() != nil {
		return nil, dockerErr
	}
	opts.Logf("not by Docker, trying Java: %v", dockerErr)
	byJava, javaErr := startJava(ctx, opts)
	if javaErr != nil {
		return nil, fmt.Errorf("%w; and by Docker: %w", javaErr, dockerErr)
	}
	return byJava, nil
}

// Hosts returns the nodes' addresses, host:port, the first node first.
func (r *Running) Hosts() []string { return r.hosts }

// Stop ends the nodes and removes what they stored.
func (r *Running) Stop() error { return r.stop() }

func startJava(ctx context.Context, opts Options) (*Running, error) {
	dir, err := os.MkdirTemp("", "localcassandra-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for Cassandra's files: %w", err)
	}
	nodes := ClusterOptions{Nodes: opts.Nodes, Lasting: opts.Tuned, Logf: opts.Logf, Config: sharedConfig}
	if opts.Tuned {
		nodes.Config, nodes.HeapMB, nodes.JavaOptions = tunedConfig, tunedHeapMB, slices.Clone(tunedJava)
	}
	nodes.JavaOptions = append(nodes.JavaOptions, schemaUnflushed)
	cluster, err := StartCluster(ctx, dir, nodes)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	stop := func() error { return errors.Join(cluster.Close(), os.RemoveAll(dir)) }
	return &Running{hosts: cluster.Hosts(), stop: stop}, nil
}
