package clock

import (
	"fmt"
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
