package cassandra

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/conn"
)

// clockOffset knows how far this instance's clock is from the cluster's.
type clockOffset struct {
	last  atomic.Pointer[clockReading] // nil: there was no answer yet
	every time.Duration                // between measurements
	again chan struct{}                // has it measured at once; of one place
}

// clockReading is by how much this instance's clock was ahead of the cluster's, less the
// error of measuring, when it read.
type clockReading struct {
	ahead time.Duration
	wall  time.Time     // what it read, without a monotonic reading
	at    time.Time     // that, by the process's monotonic clock, or a moment before
	gap   time.Duration // how long before at most
}

const (
	clockInterval = 2 * time.Second // between measurements: that is how long a clock may drift unseen
	clockSamples  = 3               // of each node; the one with the shortest round trip counts
	clockNodes    = 9               // asked at most: their median needs no more
	clockLooks    = 3               // at a clock that seems to have been set, before that is believed

	// nodeTick is how finely a node tells the time, as now() in CQL is of whole milliseconds, and
	// what makes it unique: it read its clock up to that much later than it says.
	nodeTick = time.Millisecond

	clusterTimeLasts = time.Minute // without an answer
)

// now returns by how much the clock, which is wall, is ahead now: as measured, and by what it
// was set since, which the monotonic clock tells.
func (r *clockReading) now(wall time.Time) time.Duration {
	ahead := r.ahead + wall.Round(0).Sub(r.wall) - time.Since(r.at)
	if ahead < 0 {
		return min(0, ahead+r.gap)
	}
	return ahead
}

// run measures until ctx ends.
func (c *clockOffset) run(ctx context.Context, s *Store) {
	tick := time.NewTicker(c.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-c.again:
		}
		c.measure(ctx, s)
	}
}

// soon has the clock measured at once.
func (c *clockOffset) soon() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// measure asks the nodes for their time, and tells the sweeper. Without an answer the
// last offset stays.
func (c *clockOffset) measure(ctx context.Context, s *Store) {
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
	median := medianOf(samples)
	c.last.Store(&clockReading{ahead: median.certain(), wall: median.read.Round(0), at: median.began, gap: median.gap})
	if s.Skewed() {
		s.sweeper.time.Store(nil)
		return
	}
	s.sweeper.time.Store(&median.said)
}

// medianOf returns the median of samples, which it sorts: of two in the middle the one that
// this clock is nearer to, so that half of the nodes can't make it wrong.
func medianOf(samples []clockSample) *clockSample {
	slices.SortFunc(samples, func(a, b clockSample) int { return cmp.Compare(a.certain(), b.certain()) })
	median, lower := &samples[len(samples)/2], &samples[(len(samples)-1)/2]
	if lower.certain().Abs() < median.certain().Abs() {
		return lower
	}
	return median
}

// clockSample is one node's answer to what time it is.
type clockSample struct {
	said  clusterTime   // by that node
	began time.Time     // the round trip, by the monotonic clock
	gap   time.Duration // until this clock was read, at most
	read  time.Time     // by this clock then
	ahead time.Duration // it was, judged at the middle of the round trip
	doubt time.Duration // ahead is off by that at most
}

// newClockSample returns what a node says that was asked when this clock read read, in a round
// trip of an earlier beginning.
func newClockSample(began, read, ended, said time.Time) clockSample {
	trip := ended.Sub(began)
	return clockSample{
		said: clusterTime{was: said, at: ended}, began: began, read: read,
		ahead: read.Add(trip / 2).Sub(said.Truncate(nodeTick).Add(nodeTick / 2)), doubt: (trip + nodeTick) / 2,
	}
}

// certain returns how far this clock is ahead or, below 0, behind, for sure.
func (s clockSample) certain() time.Duration {
	switch {
	case s.ahead > s.doubt:
		return s.ahead - s.doubt
	case s.ahead < -s.doubt:
		return s.ahead + s.doubt
	}
	return 0
}

func (s *Store) bestSample(ctx context.Context, host *gocql.HostInfo) (best clockSample, ok bool) {
	for range clockSamples {
		var id gocql.UUID
		began := time.Now()
		before := s.config.Now() // after the monotonic clock, so that what came in between is a part of the trip
		gap := time.Since(began)
		query := s.session.Query("SELECT now() FROM system.local").WithContext(conn.Pinned(ctx, host)).Consistency(gocql.One)
		if err := query.Scan(&id); err != nil {
			return best, ok
		}
		sample := newClockSample(began, before, time.Now(), id.Time())
		sample.gap = gap
		if !ok || sample.doubt < best.doubt {
			best, ok = sample, true
		}
	}
	return best, ok
}

// ClockOffset returns how far this instance's clock is ahead of the cluster's or,
// below 0, behind: the median over nodes, less the error of measuring, and what it was set
// since. It is 0 and false before the first answer.
func (s *Store) ClockOffset() (ahead time.Duration, known bool) {
	last := s.clock.last.Load()
	if last == nil {
		return 0, false
	}
	return last.now(s.config.Now()), true
}

// Skewed reports whether this instance's clock is beyond the configured tolerance now, also
// where it was set since it was measured.
func (s *Store) Skewed() bool {
	last, tolerance := s.clock.last.Load(), s.config.ClockTolerance
	if last == nil || tolerance <= 0 {
		return false
	}
	for range clockLooks { // a process that stood still between the two readings sees the same
		if last.now(s.config.Now()).Abs() <= tolerance {
			return false
		}
	}
	if last.ahead.Abs() <= tolerance { // or a machine that slept, whose monotonic clock stood still
		s.clock.soon()
	}
	return true
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
