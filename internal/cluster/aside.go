package cluster

import (
	"errors"
	"time"
)

// aside is whether this instance stands aside, as it may not decide: its clock is wrong. It belongs to the
// goroutine that tends the seat.
type aside struct {
	is    bool
	since time.Time // when it ceased to be as it should; zero: it is
}

// For how long an instance may not decide before it stands aside, and may before it comes back: a clock
// at the edge of what is tolerated changes no views.
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
