package cluster

import (
	"errors"
	"time"
)

// aside is the state of an instance that stands aside: it is no member while its clock is wrong, as it may not decide.
// Only the goroutine that tends the membership uses it.
type aside struct {
	stands bool
	since  time.Time // since when StandAside contradicts stands; zero: it does not
}

// An instance stands aside after its clock has been wrong for asideAfter, and comes back after it has been right for
// backAfter, so that a clock at the edge of the tolerance does not change views.
const (
	asideAfter = time.Second
	backAfter  = 5 * time.Second
)

var errAside = errors.New("this instance may not decide: its clock is beyond the tolerance")

// standsAside brings the state up to date, and reports whether this instance stands aside.
func (c *Cluster) standsAside() bool {
	if c.opts.StandAside == nil {
		return false
	}
	a, now, needed := &c.aside, time.Now(), asideAfter
	if a.stands {
		needed = backAfter
	}
	switch should := c.opts.StandAside(); {
	case should == a.stands:
		a.since = time.Time{}
	case a.since.IsZero():
		a.since = now
	case now.Sub(a.since) >= needed:
		a.stands, a.since = should, time.Time{}
	}
	return a.stands
}
