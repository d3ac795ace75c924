package conn

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Nodes routes a request to the node that its context names. It routes other requests by the policy that it wraps, but to
// silent nodes last. It also keeps all nodes.
type Nodes struct {
	gocql.HostSelectionPolicy
	local    string // the local data centre; empty: none
	silences *silences

	mu    sync.Mutex
	hosts []*gocql.HostInfo
	up    map[string]struct{} // ids of nodes with a connection
	came  chan struct{}       // holds a token after a node was connected to
}

var _ gocql.ReadyPolicy = (*Nodes)(nil)

// newNodes wraps policy, which prefers the nodes of the data centre local.
func newNodes(policy gocql.HostSelectionPolicy, local string, silences *silences) *Nodes {
	return &Nodes{
		HostSelectionPolicy: policy, local: local, silences: silences, up: make(map[string]struct{}), came: make(chan struct{}, 1),
	}
}

// HostUp notes that a node was connected to.
func (n *Nodes) HostUp(host *gocql.HostInfo) {
	n.HostSelectionPolicy.HostUp(host)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.up[host.HostID()] = struct{}{}
	select {
	case n.came <- struct{}{}:
	default:
	}
}

// othersWithin is how long a new session waits for further nodes after the first one. A node that stands still would otherwise
// delay it for many seconds.
const othersWithin = 250 * time.Millisecond

// Ready reports whether the session can begin with the connected nodes.
func (n *Nodes) Ready() bool {
	late := time.After(othersWithin)
	for {
		n.mu.Lock()
		up, all := len(n.up), len(n.hosts)
		n.mu.Unlock()
		if up >= all {
			return true
		}
		select {
		case <-n.came:
		case <-late:
			return up > 0
		}
	}
}

// AddHost notes a node that the driver has found.
func (n *Nodes) AddHost(host *gocql.HostInfo) {
	n.mu.Lock()
	n.hosts = append(n.without(host), host)
	n.mu.Unlock()
	n.HostSelectionPolicy.AddHost(host)
}

// RemoveHost removes a node that left the cluster.
func (n *Nodes) RemoveHost(host *gocql.HostInfo) {
	n.mu.Lock()
	n.hosts = n.without(host)
	n.mu.Unlock()
	n.HostSelectionPolicy.RemoveHost(host)
}

// Hosts returns the nodes of the cluster that the driver knows.
func (n *Nodes) Hosts() []*gocql.HostInfo {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.hosts)
}

func (n *Nodes) without(host *gocql.HostInfo) []*gocql.HostInfo {
	return slices.DeleteFunc(slices.Clone(n.hosts), func(have *gocql.HostInfo) bool { return have.HostID() == host.HostID() })
}

type pinKey struct{}

// Pinned returns a context whose requests go only to host.
func Pinned(ctx context.Context, host *gocql.HostInfo) context.Context {
	return context.WithValue(ctx, pinKey{}, host)
}

// Pick returns the Pinned host, or the wrapped policy's hosts. It returns each twice, because a speculative attempt that finds
// no further node fails at once, and with it the request in progress.
func (n *Nodes) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	var host *gocql.HostInfo
	if q != nil {
		host, _ = q.Context().Value(pinKey{}).(*gocql.HostInfo)
	}
	if host == nil {
		return twice(n.WithinBorders(q))
	}
	left := 2
	return func() gocql.SelectedHost {
		if left == 0 {
			return nil
		}
		left--
		return chosenHost{host}
	}
}

// WithinBorders picks hosts for q, silent ones last. For a level that counts in the local data centre it leaves out the nodes
// of other data centres, for which local means their own.
func (n *Nodes) WithinBorders(q gocql.ExecutableQuery) gocql.NextHost {
	next := n.silences.last(n.HostSelectionPolicy.Pick(q))
	if q == nil || n.local == "" || !CountsLocally(q.GetConsistency()) {
		return next
	}
	return func() gocql.SelectedHost {
		for host := next(); host != nil; host = next() {
			if host.Info().DataCenter() == n.local {
				return host
			}
		}
		return nil
	}
}

// CountsLocally reports whether level counts replicas in the coordinator's own data centre.
func CountsLocally(level gocql.Consistency) bool {
	switch level {
	case gocql.LocalQuorum, gocql.LocalOne, Levels[policy.LevelLocalSerial]:
		return true
	}
	return false
}

// twice returns the hosts of next, and then the same hosts again. It does not pick them anew, as a pick reads fields of the
// query that the driver writes during the first attempt.
func twice(next gocql.NextHost) gocql.NextHost {
	var given []gocql.SelectedHost
	once, again := distinct(next), false
	return func() gocql.SelectedHost {
		if !again {
			if host := once(); host != nil {
				given = append(given, host)
				return host
			}
			again = true
		}
		if len(given) == 0 {
			return nil
		}
		host := given[0]
		given = given[1:]
		return host
	}
}

// distinct leaves out hosts that next has returned before. The driver compares hosts by pointer, and may have several pointers
// for a node, so that its second choice could be the same node again.
func distinct(next gocql.NextHost) gocql.NextHost {
	var seen []string
	return func() gocql.SelectedHost {
		for host := next(); host != nil; host = next() {
			if id := host.Info().HostID(); !slices.Contains(seen, id) {
				seen = append(seen, id)
				return host
			}
		}
		return nil
	}
}

// knownHosts is the policy below gocql.TokenAwareHostPolicy. That asks whether a nil host is local while the ring is empty,
// which it is for a moment when the only node comes back at another address.
type knownHosts struct{ gocql.HostSelectionPolicy }

// IsLocal reports whether host is local. It is false for nil.
func (k knownHosts) IsLocal(host *gocql.HostInfo) bool {
	return host != nil && k.HostSelectionPolicy.IsLocal(host)
}

// chosenHost is a gocql.SelectedHost that keeps no score.
type chosenHost struct{ host *gocql.HostInfo }

// Info returns the host.
func (c chosenHost) Info() *gocql.HostInfo { return c.host }

// Mark does nothing.
func (chosenHost) Mark(error) {}

// Topology has the cluster's data centres, and how many nodes each has.
type Topology struct {
	nodes map[string]int // by data centre
}

// datacenters returns the names of the data centres in alphabetical order.
func (t Topology) datacenters() []string { return slices.Sorted(maps.Keys(t.nodes)) }

// Local returns the data centre to prefer: asked, or the only one if asked is empty. If there are several, it then returns
// none, and an error if one is needed.
func (t Topology) Local(asked string, needed bool) (string, error) {
	names := t.datacenters()
	switch {
	case asked != "" && !slices.Contains(names, asked):
		return "", Mistakef("cassandra-datacenter: the cluster has no %q, it has %s", asked, strings.Join(names, ", "))
	case asked != "":
		return asked, nil
	case len(names) == 1:
		return names[0], nil
	case needed:
		return "", t.Ambiguous()
	}
	return "", nil
}

// Ambiguous returns the error of a cluster with several data centres of which none was chosen as the local one.
func (t Topology) Ambiguous() error {
	return Mistakef("cassandra-datacenter: the cluster has %s, and LOCAL_ Levels count in one of them: name the local one",
		strings.Join(t.datacenters(), ", "))
}

// Replication returns the map with which to create a keyspace. Each data centre has as many copies as nodes, but at most
// three.
func (t Topology) Replication() string {
	var b strings.Builder
	b.WriteString("{'class': 'NetworkTopologyStrategy'")
	for _, name := range t.datacenters() {
		fmt.Fprintf(&b, ", '%s': %d", strings.ReplaceAll(name, "'", "''"), min(3, t.nodes[name]))
	}
	b.WriteString("}")
	return b.String()
}

// Topology returns the topology that the driver has found. The driver reads it from a single node. Queries of our own would go
// to different nodes.
func (n *Nodes) Topology() Topology {
	t := Topology{nodes: make(map[string]int)}
	for _, host := range n.Hosts() {
		t.nodes[host.DataCenter()]++
	}
	return t
}
