package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// silences keeps which nodes are silent: those that have answered nothing since a request that was sent to them longer ago
// than after. The driver keeps choosing a node that stands still as long as its connections are open. silences implements
// gocql.StreamObserver, by which the driver reports every request of a session, including its own, and late answers.
type silences struct {
	after time.Duration // 0: no node is ever silent
	began time.Time     // the time from which instants are counted

	nodes sync.Map // *atomic.Int64 by host id: when the first request since the last answer was sent; 0: none was
}

var (
	_ gocql.StreamObserver        = (*silences)(nil)
	_ gocql.StreamObserverContext = (*silences)(nil)
)

func newSilences(after time.Duration) *silences { return &silences{after: after, began: time.Now()} }

// StreamContext returns s, as it treats all requests to a node alike.
func (s *silences) StreamContext(context.Context) gocql.StreamObserverContext { return s }

// StreamStarted notes a request to a node.
func (s *silences) StreamStarted(o gocql.ObservedStream) {
	if since := s.of(o.Host); since.Load() == 0 {
		since.CompareAndSwap(0, int64(time.Since(s.began))+1)
	}
}

// StreamFinished notes an answer of a node.
func (s *silences) StreamFinished(o gocql.ObservedStream) { s.of(o.Host).Store(0) }

// StreamAbandoned ignores a request whose connection has ended. A silent node stays silent until it answers on a new
// connection.
func (s *silences) StreamAbandoned(gocql.ObservedStream) {}

func (s *silences) of(host *gocql.HostInfo) *atomic.Int64 {
	id := host.HostID()
	if since, ok := s.nodes.Load(id); ok {
		return since.(*atomic.Int64)
	}
	since, _ := s.nodes.LoadOrStore(id, new(atomic.Int64))
	return since.(*atomic.Int64)
}

// silent reports whether host is silent.
func (s *silences) silent(host *gocql.HostInfo) bool {
	since := s.of(host).Load()
	return s.after > 0 && since > 0 && time.Since(s.began)-time.Duration(since) > s.after
}

// last returns the nodes of next, silent ones after all others. No caller's request need probe whether a silent node is back,
// as every few seconds each node is asked for its time, and the driver checks whether it is alive.
func (s *silences) last(next gocql.NextHost) gocql.NextHost {
	var silent []gocql.SelectedHost
	return func() gocql.SelectedHost {
		for host := next(); host != nil; host = next() {
			if !s.silent(host.Info()) {
				return host
			}
			silent = append(silent, host)
		}
		if len(silent) == 0 {
			return nil
		}
		host := silent[0]
		silent = silent[1:]
		return host
	}
}
