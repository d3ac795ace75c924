// Package gate keeps logs from growing with the load. The service has more of it in its own internal/gate.
package gate

import (
	"sync/atomic"
	"time"
)

// Second lets one through each second, as of what fails with every request. The zero value
// is ready, and safe for concurrent use.
type Second struct {
	last atomic.Int64 // nanoseconds since the Unix epoch; 0: none yet
}

// Open reports whether who comes at now may pass: nobody did within the second before, nor
// the second after, which a clock that was set back makes of long ago.
func (s *Second) Open(now time.Time) bool {
	last, at := s.last.Load(), now.UnixNano()
	apart := time.Duration(at - last).Abs()
	return (last == 0 || apart >= time.Second) && s.last.CompareAndSwap(last, at)
}
