package cassandra

import (
	"context"
	"math"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TokenOf returns the place of a key on the ring.
func TokenOf(key []byte) int64 { return tokenOf(key) }

// Ask asks for the first row, without a level of its own.
func (s *Store) Ask(into any, cql string, args ...any) error {
	return s.session.Query(cql, args...).Scan(into)
}

// SetClusterTime makes the sweeper believe that it is now, until the clock is measured
// again.
func (s *Store) SetClusterTime(now time.Time) {
	s.sweeper.time.Store(&clusterTime{was: now, at: time.Now()})
}

// MeasureClockEvery has the clock measured so often. Call it before Run.
func (s *Store) MeasureClockEvery(d time.Duration) { s.clock.every = d }

// SleepFor has the store find what a process finds whose machine slept for d: its clock is
// right, and the monotonic clock stood still.
func (s *Store) SleepFor(d time.Duration) {
	last := *s.clock.last.Load()
	last.wall = last.wall.Add(-d)
	s.clock.last.Store(&last)
}

// SweepAsOneSlice sweeps the whole ring as if it were one slice.
func (s *Store) SweepAsOneSlice(ctx context.Context) error {
	now, ok := s.sweeper.time.Load().now()
	if !ok {
		return errNoTime
	}
	return s.sweeper.part(ctx, math.MinInt64, math.MaxInt64, now.Add(-s.config.SweepAge).UnixMilli(), sweepHalvings)
}

// PerBatch returns how many rows a batch may have.
func (s *Store) PerBatch() int { return s.perBatch() }

// GroupWindow returns the longest window of the nodes as far as is known.
func (s *Store) GroupWindow() time.Duration { return time.Duration(s.groupWindow.Load()) }

// SetGroupWindow batches rows as for nodes with this window, until the nodes are asked again.
func (s *Store) SetGroupWindow(window time.Duration) { s.groupWindow.Store(int64(window)) }

// WatchTrips calls seen with how many keys each trip of several requests has. Call it
// before the store is used.
func (s *Store) WatchTrips(seen func(keys int)) {
	s.reads.send = watched(s.reads.send, seen)
	s.writes.send = watched(s.writes.send, seen)
	s.written.send = watched(s.written.send, seen)
}

func watched[R any](
	send func(context.Context, lane, []*item[R]), seen func(keys int),
) func(context.Context, lane, []*item[R]) {
	return func(ctx context.Context, l lane, items []*item[R]) { seen(len(items)); send(ctx, l, items) }
}

// Together writes an event for each key by one trip, and reads all of them by another,
// at level ONE. It returns how many events each has, and the errors of each.
func (s *Store) Together(keys [][]byte, e store.Event) (found []int, wrote, read []error) {
	on := lane{level: gocql.One}
	var said []*item[*keyWrite]
	var reads []*item[*keyRead]
	for _, key := range keys {
		entry := appendEntry(key, &store.LogWrite{TTL: time.Minute}, &e, false)
		said = append(said, &item[*keyWrite]{request: &keyWrite{key, []gocql.BatchEntry{entry}}})
		reads = append(reads, &item[*keyRead]{request: &keyRead{key: key, query: &store.LogQuery{Max: 1}}})
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.config.Timeout)
	defer cancel()
	s.writeKeysTogether(ctx, on, said)
	s.readTogether(ctx, on, reads)
	for i := range keys {
		found = append(found, len(reads[i].request.log.Events))
		wrote, read = append(wrote, said[i].err), append(read, reads[i].err)
	}
	return found, wrote, read
}
