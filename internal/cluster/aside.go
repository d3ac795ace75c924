package cluster

import (
	"errors"
	"time"
)

// aside is whether this instance stands aside, which it does while its clock is wrong and it may not decide. It belongs
// to the goroutine that tends the membership.
type aside struct {
	is    bool
	since time.Time // when is began to differ from what StandAside says; zero: it does not differ
}

// How long an instance must be wrong before it stands aside, and right before it comes back, so that a clock at the
// edge of the tolerance does not change views.
const (
	asideAfter = time.Second
	backAfter  = 5 * time.Second
)

var errAside = errors.New("this instance may not decide: its clock is beyond the tolerance")

// standsAside reports whether this instance stands aside.
func (c *Cluster) standsAside() bool {
	if c.opts.StandAside == nil {
		return false
	}
	a, now, lasts := &c.aside, time.Now(), asideAfter
	if a.is {
		lasts = backAfter
	}
	switch should := c.opts.StandAside(); {
	case should == a.is:
		a.since = time.Time{}
	case a.since.IsZero():
		a.since = now
	case now.Sub(a.since) >= lasts:
		a.is, a.since = should, time.Time{}
	}
	return a.is
}
