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

// clockOffset measures how far this instance's clock is from the cluster's.
type clockOffset struct {
	last  atomic.Pointer[clockReading] // nil: no answer yet
	every time.Duration                // interval of measurements
	again chan struct{}                // triggers a measurement; of capacity one
}

// clockReading is a measurement of the time by which this instance's clock was ahead of the cluster's, less the error of
// measurement.
type clockReading struct {
	ahead time.Duration
	wall  time.Time     // the time of the measurement by this instance's clock, without a monotonic reading
	at    time.Time     // the same time by the monotonic clock, or up to gap before it
	gap   time.Duration // the most time from at to wall
}

const (
	clockInterval = 2 * time.Second // interval of measurements; a drift of the clock in between goes unnoticed
	clockSamples  = 3               // samples of each node; the one with the shortest round trip is used
	clockNodes    = 9               // the most nodes that are asked: the median needs no more
	clockLooks    = 3               // checks of a clock that seems to have been set

	// nodeTick is the resolution of a node's now() in CQL. Its lower digits only make it unique, so the node read its clock up
	// to a tick later than its upper digits say.
	nodeTick = time.Millisecond

	clusterTimeLasts = time.Minute // how long the last answer is used
)

// now returns how far the clock, which reads wall, is ahead now: the measurement, plus changes of the clock since then, which
// it computes by comparison with the monotonic clock.
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

// soon triggers a measurement at once.
func (c *clockOffset) soon() {
	select {
	case c.again <- struct{}{}:
	default:
	}
}

// measure asks the nodes for their time, and passes it to the sweeper. If no node answers, the last offset stays.
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
	s.sweeper.time.Store(&median.cluster)
}

// medianOf returns the median of samples, which it sorts. Of two in the middle it returns the one that is nearer to this
// clock, so that only more than half of the nodes can make this clock appear wrong.
func medianOf(samples []clockSample) *clockSample {
	slices.SortFunc(samples, func(a, b clockSample) int { return cmp.Compare(a.certain(), b.certain()) })
	median, lower := &samples[len(samples)/2], &samples[(len(samples)-1)/2]
	if lower.certain().Abs() < median.certain().Abs() {
		return lower
	}
	return median
}

// clockSample is one node's answer to the question for its time.
type clockSample struct {
	cluster clusterTime   // the node's time
	began   time.Time     // the start of the round trip, by the monotonic clock
	gap     time.Duration // the longest possible time from began to read
	read    time.Time     // this clock's time at the start
	ahead   time.Duration // how far this clock was ahead, if the node answered in the middle of the round trip
	doubt   time.Duration // the largest error of ahead
}

// newClockSample returns the sample of a node that answered with its time answer. The round trip lasted from began to ended,
// and this clock's time was read at its start.
func newClockSample(began, read, ended, answer time.Time) clockSample {
	trip := ended.Sub(began)
	return clockSample{
		cluster: clusterTime{was: answer, at: ended}, began: began, read: read,
		ahead: read.Add(trip / 2).Sub(answer.Truncate(nodeTick).Add(nodeTick / 2)), doubt: (trip + nodeTick) / 2,
	}
}

// certain returns how far this clock is at least ahead or, if negative, behind.
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
		before := s.config.Now() // after the monotonic clock, so that time in between is a part of the trip
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

// ClockOffset returns how far this instance's clock is ahead of the cluster's or, if negative, behind: the median over nodes,
// less the error of measurement, plus changes of the clock since. It returns 0 and false before the first answer.
func (s *Store) ClockOffset() (ahead time.Duration, known bool) {
	last := s.clock.last.Load()
	if last == nil {
		return 0, false
	}
	return last.now(s.config.Now()), true
}

// Skewed reports whether this instance's clock is beyond the configured tolerance now. It includes changes of the clock since
// the last measurement.
func (s *Store) Skewed() bool {
	last, tolerance := s.clock.last.Load(), s.config.ClockTolerance
	if last == nil || tolerance <= 0 {
		return false
	}
	for range clockLooks { // repeated, as the process may have stood still between reading the two clocks
		if last.now(s.config.Now()).Abs() <= tolerance {
			return false
		}
	}
	if last.ahead.Abs() <= tolerance { // the clock was right when measured: perhaps the machine slept, and its monotonic clock stood still
		s.clock.soon()
	}
	return true
}

// clusterTime is the cluster's time at an instant of this process. It advances by the monotonic clock, so that changes
// of this machine's clock don't affect it.
type clusterTime struct{ was, at time.Time }

// now returns the cluster's time, false if it was not measured recently.
func (c *clusterTime) now() (time.Time, bool) {
	if c == nil {
		return time.Time{}, false
	}
	since := time.Since(c.at)
	return c.was.Add(since), since < clusterTimeLasts
}
