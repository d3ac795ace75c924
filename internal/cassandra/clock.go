package cassandra

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
)

// clock knows how far this instance's clock is from the cluster's.
type clock struct {
	offset atomic.Int64 // nanoseconds that this clock is ahead, less the error of measuring
	known  atomic.Bool
}

const (
	clockInterval = 2 * time.Second // between measurements: a clock that jumps is noticed within seconds
	clockSamples  = 3               // of each node; the one with the shortest round trip counts
	clockNodes    = 9               // asked at most: their median needs no more

	clusterTimeLasts = time.Minute // without an answer
)

// run measures until ctx ends.
func (c *clock) run(ctx context.Context, s *Store) {
	tick := time.NewTicker(clockInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.measure(ctx, s)
		}
	}
}

// measure asks the nodes for their time, and tells the sweeper. Without an answer the
// last offset stays.
func (c *clock) measure(ctx context.Context, s *Store) {
	ctx, cancel := context.WithTimeout(ctx, clockInterval)
	defer cancel()
	hosts := s.nodes.Hosts()
	var samples []clockSample
	for _, host := range hosts[:min(len(hosts), clockNodes)] {
		if best, ok := s.bestSample(ctx, host); ok {
			samples = append(samples, best)
		}
	}
	if len(samples) == 0 {
		return
	}
	slices.SortFunc(samples, func(a, b clockSample) int { return cmp.Compare(a.certain(), b.certain()) })
	median := &samples[len(samples)/2]
	c.offset.Store(int64(median.certain()))
	c.known.Store(true)
	if s.Skewed() {
		s.sweeper.time.Store(nil)
		return
	}
	s.sweeper.time.Store(&median.said)
}

// clockSample is one node's answer to what time it is.
type clockSample struct {
	said  clusterTime   // by that node
	ahead time.Duration // of this clock, judged at the middle of the round trip
	trip  time.Duration // of the round trip; ahead is off by half of it at most
}

// certain returns how far this clock is ahead or, below 0, behind, for sure.
func (s clockSample) certain() time.Duration {
	doubt := s.trip / 2
	switch {
	case s.ahead > doubt:
		return s.ahead - doubt
	case s.ahead < -doubt:
		return s.ahead + doubt
	}
	return 0
}

func (s *Store) bestSample(ctx context.Context, host *gocql.HostInfo) (best clockSample, ok bool) {
	for range clockSamples {
		var id gocql.UUID
		before := s.config.Now()
		query := s.session.Query("SELECT now() FROM system.local").WithContext(pinned(ctx, host)).Consistency(gocql.One)
		if err := query.Scan(&id); err != nil {
			return best, ok
		}
		after := s.config.Now()
		sample := clockSample{said: clusterTime{was: id.Time(), at: time.Now()}, trip: after.Sub(before)}
		sample.ahead = before.Add(sample.trip / 2).Sub(id.Time())
		if !ok || sample.trip < best.trip {
			best, ok = sample, true
		}
	}
	return best, ok
}

// ClockOffset returns how far this instance's clock is ahead of the cluster's or,
// below 0, behind: the median over nodes, less the error of measuring. It is 0 and
// false before the first answer.
func (s *Store) ClockOffset() (ahead time.Duration, known bool) {
	return time.Duration(s.clock.offset.Load()), s.clock.known.Load()
}

// Skewed reports whether this instance's clock is beyond the configured tolerance.
func (s *Store) Skewed() bool {
	ahead, known := s.ClockOffset()
	return known && s.config.ClockTolerance > 0 && ahead.Abs() > s.config.ClockTolerance
}

// clusterTime is what the cluster's time was at an instant of this process. It goes on by
// the process's monotonic clock: no step of this machine's clock changes it.
type clusterTime struct{ was, at time.Time }

// now returns the cluster's time, and false if it was not measured lately.
func (c *clusterTime) now() (time.Time, bool) {
	if c == nil {
		return time.Time{}, false
	}
	since := time.Since(c.at)
	return c.was.Add(since), since < clusterTimeLasts
}
