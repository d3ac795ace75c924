package clock

import (
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// clock tells the time for half of what time.Now costs, which reads two clocks of the system:
// it reads one, that none can set, and adds what it was behind the other a millisecond ago at
// most. So a clock that is set is gone by within a millisecond. The zero clock is ready, and
// safe for concurrent use.
type clock struct{ last atomic.Pointer[reading] }

// SystemClock returns a clock that tells what time.Now does, for half of its cost; once the
// system's clock is set, within a millisecond.
func SystemClock() func() time.Time { return new(clock).now }

// reading is what both of the system's clocks said at one instant.
type reading struct {
	at    time.Time
	nanos int64 // since the Unix epoch
}

const (
	// readEvery is how long a reading is gone by.
	readEvery = time.Millisecond
	// readWithin is how long making one may take: a process that was stopped between its two
	// clocks would have all go by a wrong one.
	readWithin = 10 * time.Microsecond
)

// now returns the time.
func (c *clock) now() time.Time {
	if r := c.last.Load(); r != nil {
		if since := time.Since(r.at); since < readEvery {
			return r.at.Add(since)
		}
	}
	return c.read()
}

// instant returns the millisecond that now falls into.
func (c *clock) instant() store.Instant {
	if r := c.last.Load(); r != nil {
		if since := time.Since(r.at); since < readEvery {
			return store.Instant((r.nanos + int64(since)) / int64(time.Millisecond))
		}
	}
	return store.InstantOf(c.read())
}

// read reads both clocks, and has others go by that if they were read together.
func (c *clock) read() time.Time {
	before := time.Now()
	at := time.Now()
	if at.Sub(before) <= readWithin {
		c.last.Store(&reading{at: at, nanos: at.UnixNano()})
	}
	return at
}
