package clock

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Timing is what an instance tells the time by, and how far that may be from what others tell.
// The zero Timing has the system's clock, and no tolerance.
type Timing struct {
	StoreTimeout time.Duration    // the longest a decision waits for the store
	Tolerance    time.Duration    // how far instances' clocks may be from the store's
	NodeError    time.Duration    // how far the clocks of the store's own nodes may differ
	Now          func() time.Time // nil: the system's clock
	Skewed       func() bool      // whether this instance's clock is beyond the tolerance now; nil: never

	system clock
}

// Time returns what this instance's clock says.
func (t *Timing) Time() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return t.system.now()
}

// Instant returns the millisecond that Time falls into.
func (t *Timing) Instant() store.Instant {
	if t.Now != nil {
		return store.InstantOf(t.Now())
	}
	return t.system.instant()
}

// Checked returns Instant, by which units that are shared are dated. The error says that the
// clock is beyond the tolerance, which is looked at after it was read: one that is set in
// between is not gone by either.
func (t *Timing) Checked() (store.Instant, error) {
	now := t.Instant()
	if t.IsSkewed() {
		return 0, fmt.Errorf("%w: this instance's clock is beyond the tolerance of %v", store.ErrUnavailable, t.Tolerance)
	}
	return now, nil
}

// IsSkewed reports whether this instance's clock is beyond the tolerance now.
func (t *Timing) IsSkewed() bool { return t.Skewed != nil && t.Skewed() }

// Slack returns how much longer than its window an event counts, for instances' clocks that
// differ.
func (t *Timing) Slack() time.Duration { return 2 * t.Tolerance }

// IsSetBack reports whether the clock, which says now, said made before and was set back
// since, by more than clocks may differ and a second: what was remembered then is not to be
// gone by. A second is what rows live longer than they matter, so that those that were
// stored by a clock that was less ahead are still there.
func (t *Timing) IsSetBack(made, now store.Instant) bool {
	return made > now.Add(t.Slack()+time.Second)
}

// Lasting returns the time to live of a row that matters for lasts by the slowest of all clocks. A
// store cuts times to live to whole seconds and counts them by its nodes' clocks, hence the two
// terms at the end; a row is dated before it is written, hence the timeout.
func (t *Timing) Lasting(lasts time.Duration) time.Duration {
	return WholeSeconds(lasts+t.StoreTimeout) + time.Second + t.NodeError
}

// WholeSeconds rounds d up.
func WholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

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
	return c.read().at
}

// instant returns the millisecond that now falls into.
func (c *clock) instant() store.Instant {
	if r := c.last.Load(); r != nil {
		if since := time.Since(r.at); since < readEvery {
			return store.Instant((r.nanos + int64(since)) / int64(time.Millisecond))
		}
	}
	return store.Instant(c.read().nanos / int64(time.Millisecond))
}

// read reads both clocks, and has others go by that if they were read together.
func (c *clock) read() *reading {
	before := time.Now()
	at := time.Now()
	r := &reading{at: at, nanos: at.UnixNano()}
	if at.Sub(before) <= readWithin {
		c.last.Store(r)
	}
	return r
}
