package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest/localcassandra"
)

const (
	keyspace = "hygiene"
	heapMB   = 1024

	queryTimeout = 30 * time.Second // of what is asked about the node
	nodeStart    = 10 * time.Minute
)

// nodeSettings differ from a usual node's so that in minutes it does what another does
// in weeks: flush its small memtables, and forget the state of compare-and-set when
// gc_grace is over rather than after the three hours that the default has at least.
var nodeSettings = map[string]string{
	"memtable_heap_space":    "32MiB",
	"memtable_offheap_space": "32MiB",
	"commitlog_total_space":  "256MiB",
	"paxos_state_purging":    "gc_grace",
	"concurrent_compactors":  "1",
}

// Shortened settings of the tables. TimeWindowCompactionStrategy knows no windows
// shorter than a minute.
const (
	gcGrace    = 30 // seconds, for 3 hours
	checkEvery = 10 // seconds between looks for SSTables that have expired whole, for 10 minutes
)

// shortened are the statements that make them so; those of compaction take all of its
// options.
var shortened = []string{
	"ALTER TABLE %s.events_hour WITH compaction = {'class': 'TimeWindowCompactionStrategy', " +
		"'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1, " +
		"'expired_sstable_check_frequency_seconds': %d} AND gc_grace_seconds = %d",
	"ALTER TABLE %s.changes WITH compaction = {'class': 'TimeWindowCompactionStrategy', " +
		"'compaction_window_unit': 'MINUTES', 'compaction_window_size': 1, " +
		"'tombstone_compaction_interval': 60, 'unchecked_tombstone_compaction': 'true', " +
		"'expired_sstable_check_frequency_seconds': %d} AND gc_grace_seconds = %d",
	"ALTER TABLE %s.cells WITH compaction = {'class': 'UnifiedCompactionStrategy', " +
		"'expired_sstable_check_frequency_seconds': %d} AND gc_grace_seconds = %d",
}

// node is a Cassandra of this program's own, with the project's tables.
type node struct {
	cluster *localcassandra.Cluster
	folder  string
	session *gocql.Session
	config  cassandra.Config
}

func startNode(ctx context.Context, log io.Writer) (*node, error) {
	folder, err := os.MkdirTemp("", "hygiene-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, nodeStart)
	defer cancel()
	logf := func(format string, args ...any) { fmt.Fprintf(log, format+"\n", args...) }
	cluster, err := localcassandra.StartCluster(ctx, folder, localcassandra.ClusterOptions{HeapMB: heapMB, Config: nodeSettings, Logf: logf})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	n := &node{cluster: cluster, folder: folder, config: cassandra.Config{
		Hosts: cluster.Hosts(), Keyspace: keyspace, Timeout: storeTimeout,
		ClockTolerance: clockTolerance, SweepAge: sweepAge, SweepPause: sweepPause,
	}}
	if err := n.prepare(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// prepare makes the tables.
func (n *node) prepare(ctx context.Context) (err error) {
	if err := cassandra.Migrate(ctx, n.config); err != nil {
		return err
	}
	cl := gocql.NewCluster(n.config.Hosts...)
	cl.Timeout, cl.ConnectTimeout = queryTimeout, queryTimeout
	if n.session, err = cl.CreateSession(); err != nil {
		return err
	}
	for _, statement := range shortened {
		if err := n.session.Query(fmt.Sprintf(statement, keyspace, checkEvery, gcGrace)).WithContext(ctx).Exec(); err != nil {
			return err
		}
	}
	return n.session.Query(fmt.Sprintf("ALTER TABLE %s.counters WITH gc_grace_seconds = %d", keyspace, gcGrace)).WithContext(ctx).Exec()
}

// close ends the node and removes its files.
func (n *node) close() error {
	if n.session != nil {
		n.session.Close()
	}
	return errors.Join(n.cluster.Close(), os.RemoveAll(n.folder))
}

// onDisk returns how many bytes are in a folder of the node's, and in how many SSTables.
func (n *node) onDisk(pattern string) (size int64, tables int) {
	folders, _ := filepath.Glob(filepath.Join(n.folder, "node1", pattern)) // the pattern is a constant
	for _, folder := range folders {
		// A file that is compacted away meanwhile is no error, and not there.
		_ = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return nil
			}
			if info, err := entry.Info(); err == nil {
				size += info.Size()
			}
			if strings.HasSuffix(path, "-Data.db") {
				tables++
			}
			return nil
		})
	}
	return size, tables
}
