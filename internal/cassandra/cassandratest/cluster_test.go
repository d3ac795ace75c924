package cassandratest_test

import (
	"net"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// Nodes of two data centres see each other. A paused node does not answer, and a resumed one does. Acknowledged writes
// outlive a kill and a stop of the node. WaitUp waits for its return.
func TestClusterOfTwoDatacenters(t *testing.T) {
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{Datacenters: []string{"east", "west"}})
	session := cassandratest.Session(t, cluster.Hosts()...)
	seen := map[string]int{}
	for _, host := range cluster.Hosts() {
		var datacenter string
		if err := only(t, host).Query(`SELECT data_center FROM system.local`).Scan(&datacenter); err != nil {
			t.Fatalf("reading the data centre of %s: %v", host, err)
		}
		seen[datacenter]++
	}
	if len(cluster.Hosts()) != 2 || seen["east"] != 1 || seen["west"] != 1 {
		t.Errorf("nodes by data centre = %v of hosts %v", seen, cluster.Hosts())
	}
	keyspace := cassandratest.KeyspaceName(t)
	exec(t, session, `CREATE KEYSPACE `+keyspace+` WITH replication = {'class': 'NetworkTopologyStrategy', 'east': 1, 'west': 1}`)
	exec(t, session, `CREATE TABLE `+keyspace+`.events (id int PRIMARY KEY)`)
	insert := func(id int) error {
		return session.Query(`INSERT INTO `+keyspace+`.events (id) VALUES (?)`, id).Consistency(gocql.All).Exec()
	}

	node := cluster.Node(1)
	node.Pause()
	if err := ask(node.Addr()); err == nil {
		t.Error("a paused node answered")
	}
	node.Resume()
	if err := ask(node.Addr()); err != nil {
		t.Errorf("querying a resumed node: %v", err)
	}
	cluster.WaitUp()
	if err := insert(1); err != nil {
		t.Fatal(err)
	}
	node.Kill()
	if err := ask(node.Addr()); err == nil {
		t.Error("a killed node answered")
	}
	if err := insert(0); err == nil {
		t.Error("a write at level ALL succeeded while a node was dead")
	}
	node.Start()
	cluster.WaitUp()
	if err := insert(2); err != nil {
		t.Errorf("a write at level ALL after all nodes are up again: %v", err)
	}
	node.Stop()
	node.Start()
	cluster.WaitUp()
	var found int
	query := only(t, node.Addr()).Query(`SELECT COUNT(*) FROM ` + keyspace + `.events WHERE id IN (1, 2)`)
	if err := query.Consistency(gocql.LocalOne).Scan(&found); err != nil {
		t.Fatal(err)
	}
	if found != 2 {
		t.Errorf("after a kill and a stop, %d of 2 acknowledged rows are left", found)
	}
}

func exec(t *testing.T, session *gocql.Session, query string) {
	t.Helper()
	if err := session.Query(query).Exec(); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// only opens a session that uses one node. Other sessions discover the cluster's nodes, and use them in turn.
func only(t *testing.T, addr string) *gocql.Session {
	t.Helper()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	config := gocql.NewCluster(addr)
	config.HostFilter = gocql.WhiteListHostFilter(host)
	config.Timeout, config.ConnectTimeout = 10*time.Second, 10*time.Second
	session, err := config.CreateSession()
	if err != nil {
		t.Fatalf("connecting to %s alone: %v", addr, err)
	}
	t.Cleanup(session.Close)
	return session
}

// ask opens a session of its own, because the retries of an open one may hide that the node is gone.
func ask(addr string) error {
	const patience = 2 * time.Second
	config := gocql.NewCluster(addr)
	config.Timeout, config.ConnectTimeout = patience, patience
	session, err := config.CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query(`SELECT now() FROM system.local`).Exec()
}
