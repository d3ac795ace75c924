package limiter_test

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// trip is the way of one request to the replicas and back.
type trip struct {
	leaves  time.Duration
	reaches [nodes]time.Duration // when a replica does its part
	answers time.Duration        // when its caller hears of it
	heard   [nodes]bool          // whose parts the answer rests on
	fails   error                // what it says; nil: the level was met
	clock   time.Duration        // by how much the coordinator's is ahead
}

func (c *cluster) chance(p float64) bool { return p > 0 && c.rng.Float64() < p }

// between returns a time from a on, before b.
func (c *cluster) between(a, b time.Duration) time.Duration {
	return a + time.Duration(c.rng.Int64N(int64(b-a)))
}

// way returns how long a message takes.
func (c *cluster) way() time.Duration {
	if c.chance(c.weather.slowly) {
		return c.between(c.weather.fast, c.weather.slow)
	}
	return c.between(c.weather.fast/8, c.weather.fast)
}

// departs returns a trip that has not reached anybody, and whether it goes on.
func (c *cluster) departs() (t trip, goes bool) {
	t = trip{leaves: c.now(), reaches: [nodes]time.Duration{never, never, never}, answers: never}
	t.clock = c.clocks[c.rng.IntN(nodes)]
	if c.chance(c.weather.refused) {
		t.answers, t.fails = t.leaves+c.way(), errRefused
		return t, false
	}
	if c.chance(c.weather.paused) {
		t.leaves += c.between(timeout/4, longPause)
	}
	return t, true
}

// travel draws the way of a request at this level.
func (c *cluster) travel(level policy.Level) trip {
	t, goes := c.departs()
	if !goes {
		return t
	}
	var back [nodes]time.Duration
	for i := range nodes {
		t.reaches[i], back[i] = c.reach(t.leaves)
	}
	t.hear(back, level)
	c.spoil(&t)
	return t
}

// reach draws when a message that leaves then reaches a replica, and when it is heard
// of.
func (c *cluster) reach(leaves time.Duration) (there, back time.Duration) {
	there = leaves + c.way()
	if !c.chance(c.weather.lost) {
		return there, there + c.way()
	}
	switch c.rng.IntN(3) {
	case 0:
		return there, never // the answer is lost
	case 1:
		return there + c.between(timeout, longPause), never // a hint is kept, and delivered
	}
	return never, never
}

// hear has t answered as soon as level allows.
func (t *trip) hear(back [nodes]time.Duration, level policy.Level) {
	sorted := slices.Sorted(slices.Values(back[:]))
	t.answers = sorted[needed(level)-1]
	for i := range nodes {
		t.heard[i] = back[i] <= t.answers && t.answers < never
	}
}

// needed returns how many replicas a level waits for.
func needed(level policy.Level) int {
	switch level {
	case policy.LevelAny, policy.LevelOne, policy.LevelLocalOne:
		return 1
	case policy.LevelAll, policy.LevelThree:
		return nodes
	}
	return nodes/2 + 1
}

// spoil loses t's answer now and then.
func (c *cluster) spoil(t *trip) {
	switch {
	case c.chance(c.weather.silent):
		t.answers = never
	case c.chance(c.weather.broken):
		t.answers, t.fails = min(t.answers, t.leaves+c.between(0, timeout)), errBroken
	}
}

// sees reports whether a read that went by t has seen what reached the replicas then.
func (t *trip) sees(reaches *[nodes]time.Duration) bool {
	for i := range nodes {
		if t.heard[i] && reaches[i] <= t.reaches[i] {
			return true
		}
	}
	return false
}

// second returns the second that t's coordinator shows when it goes to work: times to
// live are counted in whole ones.
func (c *cluster) second(t *trip) int64 { return c.start.Add(t.leaves + t.clock).Unix() }
