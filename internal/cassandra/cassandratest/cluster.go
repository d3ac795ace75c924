package cassandratest

import (
	"context"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
)

// ClusterOptions are the options of StartCluster: the number of nodes, their data centres, memory and settings. Nil and
// the zero value mean one node.
type ClusterOptions = localcassandra.ClusterOptions

// A Cluster has nodes that a test may stop, pause and kill, as no other test uses them.
type Cluster struct {
	t       testing.TB
	cluster *localcassandra.Cluster
	nodes   []*Node
}

// StartCluster starts nodes as Java processes on loopback addresses of their own, one after the other, each about ten
// seconds, and returns when all accept CQL and see each other up. They are killed when the test ends.
func StartCluster(t testing.TB, opts *ClusterOptions) *Cluster {
	t.Helper()
	skipIfShort(t)
	if opts == nil {
		opts = &ClusterOptions{}
	}
	settings := *opts
	if settings.Logf == nil {
		settings.Logf = t.Logf
	}
	dir := t.TempDir() // made before the cleanup that kills the nodes, so that it is removed after that
	ctx, cancel := context.WithTimeout(t.Context(), localcassandra.StartTimeout)
	defer cancel()
	started, err := localcassandra.StartCluster(ctx, dir, settings)
	if err != nil {
		giveUp(t, err)
	}
	t.Cleanup(func() {
		if err := started.Close(); err != nil {
			t.Errorf("closing the cluster: %v", err)
		}
	})
	cluster := &Cluster{t: t, cluster: started}
	for _, node := range started.Nodes() {
		cluster.nodes = append(cluster.nodes, &Node{t: t, node: node})
	}
	return cluster
}

// Hosts returns the nodes' CQL addresses, host:port.
func (c *Cluster) Hosts() []string { return c.cluster.Hosts() }

// Node returns the node with a number, from 0 in the order of their start.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// WaitUp waits until every node answers and sees every other up, and fails the test if that takes over two minutes. All
// nodes must have been started and resumed.
func (c *Cluster) WaitUp() {
	c.t.Helper()
	if err := c.cluster.WaitUp(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// A Node is one node of a Cluster. Its methods fail the test on an error, and must be called on the test's own
// goroutine.
type Node struct {
	t    testing.TB
	node *localcassandra.Node
}

// Addr returns the node's CQL address, host:port. It stays the same across restarts.
func (n *Node) Addr() string { return n.node.Addr() }

// Pause freezes the node (SIGSTOP): its connections stay open, but it does not answer.
func (n *Node) Pause() { n.t.Helper(); n.must(n.node.Pause()) }

// Resume continues a paused node (SIGCONT).
func (n *Node) Resume() { n.t.Helper(); n.must(n.node.Resume()) }

// Kill ends the node at once (SIGKILL), paused or not, and returns when it is gone.
func (n *Node) Kill() { n.t.Helper(); n.must(n.node.Kill()) }

// Stop ends the node cleanly (SIGTERM) and returns when it is gone. A paused node must be resumed first.
func (n *Node) Stop() { n.t.Helper(); n.must(n.node.Stop()) }

// Start starts the node again on its data, and returns when it accepts CQL. Other nodes may take some seconds more to
// see it up: see Cluster.WaitUp.
func (n *Node) Start() { n.t.Helper(); n.must(n.node.Start(n.t.Context())) }

func (n *Node) must(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}
