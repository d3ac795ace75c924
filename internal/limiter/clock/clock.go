package clock

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Timing has an instance's clock, and the bounds on its difference from other clocks. The zero Timing has the system's clock,
// and no tolerance.
type Timing struct {
	StoreTimeout time.Duration    // the longest a decision waits for the store
	Tolerance    time.Duration    // how far instances' clocks may be from the store's
	NodeError    time.Duration    // how far the clocks of the store's own nodes may differ
	Now          func() time.Time // nil: the system's clock
	Skewed       func() bool      // reports whether this instance's clock is beyond the tolerance now; nil: it never is

	system clock
}

// Time returns the time by this instance's clock.
func (t *Timing) Time() time.Time {
	if t.Now != nil {
		return t.Now()
	}
	return t.system.now()
}

// Instant returns Time in whole milliseconds.
func (t *Timing) Instant() store.Instant {
	if t.Now != nil {
		return store.InstantOf(t.Now())
	}
	r, since := t.system.latest()
	return store.Instant((r.nanos + int64(since)) / int64(time.Millisecond))
}

// Checked returns Instant for dates of units that instances share, or an error if the clock is beyond the tolerance. It
// checks the tolerance after it has read the clock, so that it also notices a clock that was set before that.
func (t *Timing) Checked() (store.Instant, error) {
	now := t.Instant()
	if t.IsSkewed() {
		return 0, fmt.Errorf("%w: this instance's clock is beyond the tolerance of %v", store.ErrUnavailable, t.Tolerance)
	}
	return now, nil
}

// IsSkewed reports whether this instance's clock is beyond the tolerance now.
func (t *Timing) IsSkewed() bool { return t.Skewed != nil && t.Skewed() }

// Slack returns how much longer than its window an event counts, because instances' clocks differ.
func (t *Timing) Slack() time.Duration { return 2 * t.Tolerance }

// IsSetBack reports whether the clock, which now reads now, read made earlier and has since been set back by over a second
// more than clocks may differ. State that was remembered at made must then not be used. The second is added because rows
// live that much longer than they affect decisions: if the clock was ahead by less, the rows are still there.
func (t *Timing) IsSetBack(made, now store.Instant) bool {
	return made > now.Add(t.Slack()+time.Second)
}

// Lasting returns the time to live of a row that affects decisions for lasts by the slowest of all clocks. It adds the store
// timeout because a row is dated before it is written, a second because the store truncates times to live to whole seconds,
// and the node error because the store measures them by its nodes' clocks.
func (t *Timing) Lasting(lasts time.Duration) time.Duration {
	return WholeSeconds(lasts+t.StoreTimeout) + time.Second + t.NodeError
}

// WholeSeconds rounds d up to whole seconds.
func WholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// clock reads the time at half the cost of time.Now, which reads two clocks of the system. It reads only the monotonic
// clock, and adds the difference between the two clocks, as measured at most a millisecond ago. So a change of the system's
// clock takes effect within a millisecond. The zero clock is ready for use. It is safe for concurrent use.
type clock struct{ last atomic.Pointer[reading] }

// SystemClock returns a clock with the time of time.Now at half the cost. It follows a change of the system's clock
// within a millisecond.
func SystemClock() func() time.Time { return new(clock).now }

// reading is a reading of both of the system's clocks at one instant.
type reading struct {
	at    time.Time
	nanos int64 // since the Unix epoch
}

const (
	// readEvery is how long a reading is used.
	readEvery = time.Millisecond
	// readWithin is the longest time that a reading may take if it is to be used again. It may have taken longer because the
	// process was stopped between reading the two clocks, and is then wrong.
	readWithin = 10 * time.Microsecond
)

// now returns the time.
func (c *clock) now() time.Time {
	r, since := c.latest()
	return r.at.Add(since)
}

// latest returns a reading, and the time since, which is less than readEvery. It keeps a new reading for later calls if both
// clocks were read within readWithin.
func (c *clock) latest() (r *reading, since time.Duration) {
	if r = c.last.Load(); r != nil {
		if since = time.Since(r.at); since < readEvery {
			return r, since
		}
	}
	before := time.Now()
	at := time.Now()
	r = &reading{at: at, nanos: at.UnixNano()}
	if at.Sub(before) <= readWithin {
		c.last.Store(r)
	}
	return r, 0
}
