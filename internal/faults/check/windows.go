package check

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/faults/history"
)

// counting is an algorithm's definition of when a unit counts.
type counting struct {
	policy *history.Policy
	start  int64         // the true time at the history's time 0, in milliseconds
	slack  time.Duration // how much longer a log's events count
}

func (c *checker) counting(p *history.Policy) counting {
	return counting{policy: p, start: c.instant(0), slack: 2 * c.h.Header.Tolerance}
}

// width returns how long one counter of the policy counts.
func (n *counting) width() time.Duration {
	if n.policy.Buckets > 0 {
		return n.policy.Window / time.Duration(n.policy.Buckets)
	}
	return n.policy.Window
}

// floor returns the beginning of the counter for a time.
func (n *counting) floor(at time.Duration) time.Duration {
	width := n.width().Milliseconds()
	instant := n.start + at.Milliseconds()
	if at < 0 && at%time.Millisecond != 0 {
		instant--
	}
	return time.Duration(instant-instant%width-n.start) * time.Millisecond
}

// inWindow reports whether a unit with this date counts at now. Units with later dates count for longer.
func (n *counting) inWindow(dated, now time.Duration) bool {
	p := n.policy
	switch p.Algorithm {
	case "sliding-log", "concurrent":
		return dated > now-p.Window-n.slack
	case "sliding-window", "conversion":
		return n.floor(dated) > now-p.Window
	case "sliding-tail":
		return n.floor(dated) >= n.floor(now)-p.Window
	}
	return n.floor(dated) >= n.floor(now)
}

// drained returns how many parts of a unit drain from a bucket in a given time. A unit has
// one part for each millisecond of the window.
func (n *counting) drained(in time.Duration) int64 { return n.policy.Limit * in.Milliseconds() }

// parts returns the parts of n units.
func (n *counting) parts(units int64) int64 { return units * n.policy.Window.Milliseconds() }
