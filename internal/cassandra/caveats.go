package cassandra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
)

// Caveat is a reason why a cluster may lose acknowledged writes, or misjudge their times.
type Caveat string

// The caveats.
const (
	CaveatReplication Caveat = "replication_factor" // the keyspace has a single copy
	CaveatCommitlog   Caveat = "commitlog_sync"     // nodes acknowledge writes before they are on disk
	CaveatNodeClocks  Caveat = "node_clocks"        // the nodes' clocks differ by more than the tolerance
)

// Caveats returns a sentence for each caveat that the cluster has, and an empty one for each that it does not have. The
// error joins the errors of failed checks.
func (s *Store) Caveats(ctx context.Context) (map[Caveat]string, error) {
	found := make(map[Caveat]string)
	var failed []error
	for caveat, look := range map[Caveat]func(context.Context) (string, error){
		CaveatReplication: s.singleCopy, CaveatCommitlog: s.lateCommitlogs, CaveatNodeClocks: s.nodesApart,
	} {
		sentence, err := look(ctx)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", caveat, err))
		}
		if err == nil || sentence != "" {
			found[caveat] = sentence
		}
	}
	return found, errors.Join(failed...)
}

// Caveats is Store.Caveats. It fails until the cluster is reached.
func (l *Later) Caveats(ctx context.Context) (map[Caveat]string, error) {
	s, err := l.now()
	if err != nil {
		return nil, err
	}
	return s.Caveats(ctx)
}

func (s *Store) singleCopy(ctx context.Context) (string, error) {
	var replication map[string]string
	query := s.session.Query("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?", s.config.Keyspace)
	if err := s.repeated(query.WithContext(ctx).Consistency(gocql.One)).Scan(&replication); err != nil {
		return "", err
	}
	return ofSingleCopy(replication), nil
}

// ofSingleCopy returns the caveat of a keyspace with this replication. It names the data centres with one copy.
func ofSingleCopy(replication map[string]string) string {
	var where []string
	for name, factor := range replication { // data centres, or "replication_factor"
		if factor == "1" {
			where = append(where, name+" = 1")
		}
	}
	if len(where) == 0 {
		return ""
	}
	slices.Sort(where)
	return fmt.Sprintf("the keyspace has one copy (%s): while a node is down its counts can't be read, and a lost disk loses them: "+
		"use three", strings.Join(where, ", "))
}

// lateCommitlogs returns the caveat of nodes that acknowledge writes before they are on disk. It also notes the longest
// commitlog_sync_group_window of the other nodes.
func (s *Store) lateCommitlogs(ctx context.Context) (string, error) {
	var late []string
	var failed []error
	var longest time.Duration
	for _, host := range s.nodes.Hosts() {
		sync, window, err := s.commitlog(conn.Pinned(ctx, host))
		if err != nil {
			failed = append(failed, fmt.Errorf("node %s: %w", host.ConnectAddress(), err))
			continue
		}
		longest = max(longest, window)
		if sync == "periodic" {
			late = append(late, host.ConnectAddress().String())
		}
	}
	if len(failed) == 0 || longest > 0 {
		s.groupWindow.Store(int64(longest))
	}
	return ofLateCommitlogs(late), errors.Join(failed...)
}

// commitlog returns a node's commitlog_sync and, if that is group, its window.
func (s *Store) commitlog(ctx context.Context) (sync string, window time.Duration, err error) {
	setting := func(name string) (value string, err error) {
		query := s.session.Query("SELECT value FROM system_views.settings WHERE name = ?", name)
		return value, query.WithContext(ctx).Consistency(gocql.One).Scan(&value)
	}
	if sync, err = setting("commitlog_sync"); err != nil || sync != "group" {
		return sync, 0, err
	}
	text, err := setting("commitlog_sync_group_window")
	if err == nil {
		window, err = time.ParseDuration(text)
	}
	return sync, window, err
}

// ofLateCommitlogs returns the caveat of nodes that acknowledge writes before they are on disk.
func ofLateCommitlogs(nodes []string) string {
	if len(nodes) == 0 {
		return ""
	}
	return fmt.Sprintf("nodes acknowledge writes before they are on disk (commitlog_sync: periodic): if one dies, "+
		"and another replica lacks the same writes, up to ten seconds of counts are gone: use group or batch where that matters: %s",
		fewOf(nodes))
}

func (s *Store) nodesApart(ctx context.Context) (string, error) {
	samples := make(map[string]clockSample)
	for _, host := range s.nodes.Hosts() {
		if best, ok := s.bestSample(ctx, host); ok { // otherwise the node is down
			samples[host.ConnectAddress().String()] = best
		}
	}
	return ofNodesApart(samples, s.config.ClockTolerance), nil
}

// ofNodesApart returns the caveat of two nodes whose clocks certainly differ by more than tolerance; zero: no check.
func ofNodesApart(samples map[string]clockSample, tolerance time.Duration) string {
	if len(samples) == 0 || tolerance <= 0 {
		return ""
	}
	slow, fast := "", "" // the nodes with the slowest and the fastest clock
	for _, name := range slices.Sorted(maps.Keys(samples)) {
		s := samples[name]
		if slow == "" || s.ahead-s.doubt > samples[slow].ahead-samples[slow].doubt {
			slow = name
		}
		if fast == "" || s.ahead+s.doubt < samples[fast].ahead+samples[fast].doubt {
			fast = name
		}
	}
	apart := samples[slow].ahead - samples[slow].doubt - samples[fast].ahead - samples[fast].doubt
	if apart <= tolerance {
		return ""
	}
	return fmt.Sprintf("the clock of node %s is ahead of that of %s by %v, which is more than --clock-tolerance (%v): "+
		"have NTP keep all nodes in step", fast, slow, apart.Round(time.Millisecond), tolerance)
}

// mostNamed is the most nodes that a sentence names.
const mostNamed = 10

func fewOf(nodes []string) string {
	slices.Sort(nodes)
	if more := len(nodes) - mostNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(nodes[:mostNamed], ", "), more)
	}
	return strings.Join(nodes, ", ")
}
