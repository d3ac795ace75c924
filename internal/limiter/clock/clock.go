package clock

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Timing is an instance's clock, and how far it may differ from others. The zero Timing has the system's clock, and no
// tolerance.
type Timing struct {
	StoreTimeout time.Duration    // the longest a decision waits for the store
	Tolerance    time.Duration    // how far instances' clocks may be from the store's
	NodeError    time.Duration    // how far the clocks of the store's own nodes may differ
	Now          func() time.Time // nil: the system's clock
	Skewed       func() bool      // whether this instance's clock is beyond the tolerance now; nil: never

	system clock
}

// Time returns the time by this instance's clock.
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
	r, since := t.system.latest()
	return store.Instant((r.nanos + int64(since)) / int64(time.Millisecond))
}

// Checked returns Instant, for the dates of shared units, or an error if the clock is beyond the tolerance. It checks
// the tolerance after it has read the clock, so that a clock that is set in between is not used either.
func (t *Timing) Checked() (store.Instant, error) {
	now := t.Instant()
	if t.IsSkewed() {
		return 0, fmt.Errorf("%w: this instance's clock is beyond the tolerance of %v", store.ErrUnavailable, t.Tolerance)
	}
	return now, nil
}

// IsSkewed reports whether this instance's clock is beyond the tolerance now.
func (t *Timing) IsSkewed() bool { return t.Skewed != nil && t.Skewed() }

// Slack returns the time beyond its window for which an event counts, as instances' clocks differ.
func (t *Timing) Slack() time.Duration { return 2 * t.Tolerance }

// IsSetBack reports whether the clock, which reads now, read made before and has since been set back, by more than
// clocks may differ and a second. State that was remembered at made must then not be used. The second is the time for
// which rows live on after they matter: rows that were stored by a clock that was ahead by less are still there.
func (t *Timing) IsSetBack(made, now store.Instant) bool {
	return made > now.Add(t.Slack()+time.Second)
}

// Lasting returns the time to live of a row that matters for lasts by the slowest of all clocks. A store truncates
// times to live to whole seconds and measures them by its nodes' clocks, hence the two terms at the end; a row gets its
// date before it is written, hence the timeout.
func (t *Timing) Lasting(lasts time.Duration) time.Duration {
	return WholeSeconds(lasts+t.StoreTimeout) + time.Second + t.NodeError
}

// WholeSeconds rounds d up to whole seconds.
func WholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// clock reads the time at half the cost of time.Now, which reads two clocks of the system. It reads the monotonic clock
// alone, and adds the difference between the two from at most a millisecond ago. So a change of the system's clock
// takes effect within a millisecond. The zero clock is ready, and safe for concurrent use.
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
	// readWithin is the longest time that a reading may take to be kept: if the process was stopped between the two
	// clocks, the reading is wrong.
	readWithin = 10 * time.Microsecond
)

// now returns the time.
func (c *clock) now() time.Time {
	r, since := c.latest()
	return r.at.Add(since)
}

// latest returns a reading and the time since, which is less than readEvery. It keeps a new reading for others if the two
// clocks were read together.
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
