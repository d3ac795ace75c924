// Package throttle keeps logs from growing with the load. The service's own internal/throttle does more.
package throttle

import (
	"sync/atomic"
	"time"
)

// Second allows one event a second. The zero value is ready, and safe for concurrent use.
type Second struct {
	last atomic.Int64 // nanoseconds since the Unix epoch; 0: none yet
}

// Allow reports whether an event may happen at now: none was allowed within a second before or after it. A last event
// later than that means that the clock was set back.
func (s *Second) Allow(now time.Time) bool {
	last, at := s.last.Load(), now.UnixNano()
	apart := time.Duration(at - last).Abs()
	return (last == 0 || apart >= time.Second) && s.last.CompareAndSwap(last, at)
}
