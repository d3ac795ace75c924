package localcassandra

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/gocql/gocql"
)

const (
	// DefaultDatacenter is the data centre of nodes without one, as in the Docker image.
	DefaultDatacenter = "datacenter1"

	defaultHeapMB   = 512 // enough for a few thousand rows; three nodes still fit beside a test binary with the race detector
	convergeTimeout = 2 * time.Minute
	pollInterval    = 200 * time.Millisecond
)

// ClusterOptions are the options of StartCluster. The zero value means one node with a heap of 512 MB.
type ClusterOptions struct {
	// Nodes is how many nodes to start; 0 means as many as there are Datacenters, at least 1.
	Nodes int
	// Datacenters names each node's data centre, in order. Nodes beyond its end are in the last one, or in
	// DefaultDatacenter.
	Datacenters []string
	// HeapMB is the Java heap of each node in megabytes; 0 means 512.
	HeapMB int
	// Config adds settings to each node's cassandra.yaml, or replaces its settings.
	Config map[string]string
	// JavaOptions are added after the other options of each node's Java.
	JavaOptions []string
	// Lasting lets each node's Java optimize hot code. That takes as much processor time in the first minutes as tests
	// do, and pays off within hours.
	Lasting bool
	// Logf logs the progress; nil: no log.
	Logf func(format string, args ...any)
}

// quiet drops libraries' messages about refused connections, which are normal while a node starts.
var quiet = log.New(io.Discard, "", 0)

// A Cluster is a set of nodes that run as Java processes, each on a loopback address and in a folder of its own.
type Cluster struct {
	nodes    []*Node
	software software
	records  string // the file that the first node writes when it stops, to become software.classes; empty if that exists
}

// StartCluster starts nodes one after the other, with their files under dir, and returns when each accepts CQL and sees
// the others up. The caller closes it. The error is ErrUnavailable without Java 11 or 17, or without Maven to get the jars.
func StartCluster(ctx context.Context, dir string, opts ClusterOptions) (*Cluster, error) {
	opts = opts.withDefaults()
	found, err := findSoftware(ctx, opts.Logf)
	if err != nil {
		return nil, err
	}
	free, err := freePlaces(opts.Nodes)
	if err != nil {
		return nil, err
	}
	cluster := &Cluster{software: found}
	if _, err := os.Stat(found.classes); err != nil && found.classes != "" {
		cluster.records = fmt.Sprintf("%s.%d", found.classes, os.Getpid())
	}
	for i, addr := range free.addresses {
		node := &Node{address: addr, port: free.nativePort, dir: filepath.Join(dir, fmt.Sprintf("node%d", i+1))}
		if err := node.configure(opts, opts.datacenter(i), free, found); err != nil {
			return nil, errors.Join(err, cluster.Close())
		}
		if i == 0 && cluster.records != "" {
			node.command = recording(node.command, cluster.records)
		}
		cluster.nodes = append(cluster.nodes, node)
		opts.Logf("starting Cassandra %s by Java on %s", cassandraVersion, node.Addr())
		if err := node.Start(ctx); err != nil {
			return nil, errors.Join(err, cluster.Close())
		}
	}
	if err := cluster.WaitUp(ctx); err != nil {
		return nil, errors.Join(err, cluster.Close())
	}
	return cluster, nil
}

func (o ClusterOptions) withDefaults() ClusterOptions {
	if o.Nodes == 0 {
		o.Nodes = max(len(o.Datacenters), 1)
	}
	if o.HeapMB == 0 {
		o.HeapMB = defaultHeapMB
	}
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	return o
}

func (o ClusterOptions) datacenter(node int) string {
	if len(o.Datacenters) == 0 {
		return DefaultDatacenter
	}
	return o.Datacenters[min(node, len(o.Datacenters)-1)]
}

// Nodes returns the nodes, in the order of their start.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Hosts returns the nodes' addresses, host:port, in the order of their start.
func (c *Cluster) Hosts() []string {
	hosts := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		hosts[i] = n.Addr()
	}
	return hosts
}

// WaitUp returns when every node answers and sees every other node up; all of them must have been started. After a node
// was paused or killed and is back, gossip takes some seconds. It returns an error after two minutes.
func (c *Cluster) WaitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, convergeTimeout, fmt.Errorf("not within %v", convergeTimeout))
	defer cancel()
	// When a killed node is back, other nodes may not have noticed its death. They see it as down for a moment once they
	// learn of its restart, so wait for that first.
	if err := poll(ctx, func() error { return c.knowRestarts(ctx) }); err != nil {
		return fmt.Errorf("the nodes do not know each other's last start: %w", err)
	}
	for _, n := range c.nodes {
		err := poll(ctx, func() error { return seesAll(ctx, n.Addr(), len(c.nodes)) })
		if err != nil {
			return fmt.Errorf("node %s does not see all %d nodes up: %w\n%s", n.Addr(), len(c.nodes), err, n.LogTail())
		}
	}
	return nil
}

// knowRestarts returns an error while a node does not know another one's last start.
func (c *Cluster) knowRestarts(ctx context.Context) error {
	views := make([]map[string]int, len(c.nodes)) // of each node: the generations of all by address
	for i, n := range c.nodes {
		var err error
		if views[i], err = generations(ctx, n.Addr()); err != nil {
			return err
		}
	}
	for i, n := range c.nodes {
		for j, peer := range c.nodes {
			seen, is := views[i][peer.address], views[j][peer.address]
			if seen != is || is == 0 {
				return fmt.Errorf("node %s knows %s by generation %d, want %d", n.Addr(), peer.Addr(), seen, is)
			}
		}
	}
	return nil
}

// generations asks one node for the gossip generation, which is new with each start, that it knows of each node by address.
func generations(ctx context.Context, addr string) (map[string]int, error) {
	session, err := sessionTo(addr)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	rows := session.Query(`SELECT address, generation FROM system_views.gossip_info`).WithContext(ctx).Iter()
	found := map[string]int{}
	var peer string
	var generation int
	for rows.Scan(&peer, &generation) {
		found[peer] = generation
	}
	if err := rows.Close(); err != nil {
		return nil, fmt.Errorf("asking %s for its gossip: %w", addr, err)
	}
	return found, nil
}

// Close kills the nodes that still run. Their files stay.
func (c *Cluster) Close() error {
	errs := []error{c.record()}
	for _, n := range c.nodes {
		errs = append(errs, n.Kill())
	}
	return errors.Join(errs...)
}

// record makes the first node, if it still runs, write its classes to a file as it ends, for nodes of later clusters.
func (c *Cluster) record() error {
	if c.records == "" || len(c.nodes) == 0 || c.nodes[0].process == nil {
		return nil
	}
	_ = c.nodes[0].Resume() // it may be paused, or gone
	if err := c.nodes[0].Stop(); err != nil {
		return err
	}
	if err := os.Rename(c.records, c.software.classes); !errors.Is(err, os.ErrNotExist) {
		return err // a node that was not up yet has no classes
	}
	return nil
}

// seesAll asks one node for its peers, and then, at level ALL, for rows whose replicas are all nodes.
func seesAll(ctx context.Context, addr string, nodes int) error {
	session, err := sessionTo(addr)
	if err != nil {
		return err
	}
	defer session.Close()
	var peers int
	if err := session.Query(`SELECT COUNT(*) FROM system.peers_v2`).WithContext(ctx).Scan(&peers); err != nil {
		return fmt.Errorf("reading its peers: %w", err)
	}
	if peers != nodes-1 {
		return fmt.Errorf("it knows %d peers of %d", peers, nodes-1)
	}
	// Cassandra's own tables with two and three replicas. Among rowsPerNode rows per node, each node is a replica of some.
	const rowsPerNode = 4
	table := `system_distributed.parent_repair_history WHERE parent_id = ?`
	switch nodes {
	case 1:
		return nil
	case 2:
		table = `system_traces.sessions WHERE session_id = ?`
	}
	for range nodes * rowsPerNode {
		row := session.Query(`SELECT * FROM `+table, gocql.TimeUUID()).Consistency(gocql.All).WithContext(ctx)
		if err := row.Iter().Close(); err != nil {
			return fmt.Errorf("reading a row from all its replicas: %w", err)
		}
	}
	return nil
}

// sessionTo connects only to one node.
func sessionTo(addr string) (*gocql.Session, error) {
	config := gocql.NewCluster(addr)
	config.Authenticator = gocql.PasswordAuthenticator{Username: "cassandra", Password: "cassandra"} // for nodes whose Config requires it
	config.HostFilter = gocql.WhiteListHostFilter(hostOf(addr))
	config.Consistency = gocql.One
	config.NumConns = 1
	config.Timeout = dialTimeout
	config.ConnectTimeout = dialTimeout
	config.ReconnectionPolicy = &gocql.ConstantReconnectionPolicy{MaxRetries: 1}
	config.Logger = quiet
	session, err := config.CreateSession()
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", addr, err)
	}
	return session, nil
}

// poll calls try until it returns nil, or until the context ends; the error then includes that of the last complete
// attempt.
func poll(ctx context.Context, try func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	last := errors.New("nothing was tried")
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, lastly: %w", context.Cause(ctx), last)
		case <-ticker.C:
		}
	}
}

func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
