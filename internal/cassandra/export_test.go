package cassandra

import (
	"context"
	"math"
	"time"
)

// SetClusterTime makes the sweeper believe that it is now, until the clock is measured
// again.
func (s *Store) SetClusterTime(now time.Time) {
	s.sweeper.time.Store(&clusterTime{was: now, at: time.Now()})
}

// SweepAsOneSlice sweeps the whole ring as if it were one slice.
func (s *Store) SweepAsOneSlice(ctx context.Context) error {
	now, ok := s.sweeper.time.Load().now()
	if !ok {
		return errNoTime
	}
	return s.sweeper.part(ctx, math.MinInt64, math.MaxInt64, now.Add(-s.config.SweepAge).UnixMilli(), sweepHalvings)
}
