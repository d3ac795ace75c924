package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// silences knows which nodes are silent: they have answered nothing since a request that was sent to them longer than after
// ago. The driver goes on choosing a node that stands still, for as long as its connections are open. It implements
// gocql.StreamObserver: it hears of every request of a session, the driver's own too, and of answers that come too late.
type silences struct {
	after time.Duration // 0: no node is ever silent
	began time.Time     // instants are counted from it

	nodes sync.Map // of *atomic.Int64 by host id: when the first request was sent since the last answer; 0: there is none
}

var (
	_ gocql.StreamObserver        = (*silences)(nil)
	_ gocql.StreamObserverContext = (*silences)(nil)
)

func newSilences(after time.Duration) *silences { return &silences{after: after, began: time.Now()} }

// StreamContext returns s: it tells requests of one node not apart.
func (s *silences) StreamContext(context.Context) gocql.StreamObserverContext { return s }

// StreamStarted notes that a node is asked.
func (s *silences) StreamStarted(o gocql.ObservedStream) {
	if since := s.of(o.Host); since.Load() == 0 {
		since.CompareAndSwap(0, int64(time.Since(s.began))+1)
	}
}

// StreamFinished notes that a node has answered.
func (s *silences) StreamFinished(o gocql.ObservedStream) { s.of(o.Host).Store(0) }

// StreamAbandoned is of a request whose connection has ended. The node stays as silent as it was: once there is another
// connection, it has answered.
func (s *silences) StreamAbandoned(gocql.ObservedStream) {}

func (s *silences) of(host *gocql.HostInfo) *atomic.Int64 {
	id := host.HostID()
	if since, ok := s.nodes.Load(id); ok {
		return since.(*atomic.Int64)
	}
	since, _ := s.nodes.LoadOrStore(id, new(atomic.Int64))
	return since.(*atomic.Int64)
}

// silent reports whether host is.
func (s *silences) silent(host *gocql.HostInfo) bool {
	since := s.of(host).Load()
	return s.after > 0 && since > 0 && time.Since(s.began)-time.Duration(since) > s.after
}

// last returns the nodes of next, those that are silent after all others. Nobody has to try whether one is back: it is
// asked for its time every few seconds, as all are, and by the driver whether it is alive.
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
