package conn

import (
	"context"
	"net"
	"slices"
	"testing"

	"github.com/gocql/gocql"
)

// The driver picks a node twice where it has two descriptions of it: each is tried once, and
// all once more.
func TestNodesAreTriedInTurn(t *testing.T) {
	left := []string{"a", "a", "b", "a", "c"}
	picked := func() gocql.SelectedHost {
		if len(left) == 0 {
			return nil
		}
		host := new(gocql.HostInfo)
		host.SetHostID(left[0])
		left = left[1:]
		return chosenHost{host}
	}
	var tried []string
	for next, host := twice(picked), gocql.SelectedHost(nil); ; {
		if host = next(); host == nil {
			break
		}
		tried = append(tried, host.Info().HostID())
	}
	if want := []string{"a", "b", "c", "a", "b", "c"}; !slices.Equal(tried, want) {
		t.Errorf("tried %v, want %v", tried, want)
	}
}

// TestNodesArePickedOnce holds that a query is read before its first attempt alone: the driver writes to it then.
func TestNodesArePickedOnce(t *testing.T) {
	host := new(gocql.HostInfo)
	host.SetHostID("a")
	picks := &countedPicks{HostSelectionPolicy: gocql.RoundRobinHostPolicy()}
	config := Config{Hosts: []string{"127.0.0.1"}}.WithDefaults()
	_, nodes := config.Settings("")
	nodes.HostSelectionPolicy = picks
	host.SetConnectAddress(net.IPv4(127, 0, 0, 2))
	nodes.AddHost(host)
	next := nodes.Pick(nil)
	for range 3 {
		next()
	}
	if picks.n != 1 {
		t.Errorf("the policy was asked %d times, want once", picks.n)
	}
}

// countedPicks is a policy that counts how often it is asked.
type countedPicks struct {
	gocql.HostSelectionPolicy
	n int
}

func (p *countedPicks) Pick(q gocql.ExecutableQuery) gocql.NextHost {
	p.n++
	return p.HostSelectionPolicy.Pick(q)
}

// TestRingWithoutNodes holds that a request in the moment between a node's removal and its return, at another address,
// finds no node. The driver's policies took a nil host for one.
func TestRingWithoutNodes(t *testing.T) {
	config := Config{Hosts: []string{"127.0.0.1"}}.WithDefaults()
	for _, datacenter := range []string{"", "dc1"} {
		_, nodes := config.Settings(datacenter)
		nodes.Init(new(gocql.Session))
		nodes.SetPartitioner("org.apache.cassandra.dht.Murmur3Partitioner")
		if host := nodes.Pick(routedQuery{})(); host != nil {
			t.Errorf("in data centre %q: picked %v, want none", datacenter, host.Info())
		}
	}
}

// routedQuery is a query for one partition.
type routedQuery struct{ gocql.ExecutableQuery }

func (routedQuery) Context() context.Context          { return context.Background() }
func (routedQuery) Keyspace() string                  { return "ratelimitd" }
func (routedQuery) GetRoutingKey() ([]byte, error)    { return []byte("key"), nil }
func (routedQuery) GetConsistency() gocql.Consistency { return gocql.Quorum }
