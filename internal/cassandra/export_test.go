package cassandra

import "time"

// SetClusterTime makes the sweeper believe that it is now, until the clock is measured
// again.
func (s *Store) SetClusterTime(now time.Time) {
	s.sweeper.time.Store(&clusterTime{was: now, at: time.Now()})
}
