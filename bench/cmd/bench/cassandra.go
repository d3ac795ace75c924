package main

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/bench/cpu"
)

// cassandraPIDs returns the processes of Cassandra's nodes: the only node on this machine, or else those that listen at
// the given hosts. A node in a container may listen at another address than the one that clients use.
func cassandraPIDs(hosts []string) ([]int, error) {
	all := cpu.Named("org.apache.cassandra.service.CassandraDaemon")
	if len(all) == 1 && len(hosts) == 1 {
		return all, nil
	}
	var pids []int
	for _, host := range hosts {
		pid, err := listener(all, host)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

func listener(pids []int, host string) (int, error) {
	const usualPort = "9042"
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, usualPort
	}
	address, err := netip.ParseAddrPort(net.JoinHostPort(name, port))
	if err != nil || !address.Addr().Is4() {
		return 0, fmt.Errorf("the address of Cassandra, %q, must be an IPv4 address of this machine", host)
	}
	for _, pid := range pids {
		if listens, err := cpu.Listens(pid, address); err != nil {
			return 0, err
		} else if listens {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("none of the %d Cassandras on this machine listens at %s: name its process with -cassandra", len(pids), host)
}

// dropKeyspace drops a keyspace that no further measurement needs.
func dropKeyspace(hosts []string, keyspace string) error {
	config := gocql.NewCluster(hosts...)
	config.Timeout, config.NumConns = time.Minute, 1
	session, err := config.CreateSession()
	if err != nil {
		return err
	}
	defer session.Close()
	return session.Query("DROP KEYSPACE IF EXISTS " + keyspace).Exec()
}
