package store

import (
	"math"
	"time"
)

// Instant is a point in time: whole milliseconds since the Unix epoch, UTC. The
// zero Instant is the epoch and, where a store reports one, means "never".
//
// Algorithms compute with instants rather than [time.Time] so that nothing is
// ever rounded across a limit.
type Instant int64

// Distant is later than every instant that a decision computes with.
const Distant Instant = math.MaxInt64 / 4

// InstantOf returns the millisecond that t falls into.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time returns i as a UTC time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }

// Add returns the instant d later, d cut to whole milliseconds.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d.Milliseconds()) }

// Sub returns the time from j to i; it saturates at the longest Duration.
func (i Instant) Sub(j Instant) time.Duration {
	ms := int64(i - j)
	const most = math.MaxInt64 / int64(time.Millisecond)
	if ms > most {
		return time.Duration(math.MaxInt64)
	}
	if ms < -most {
		return time.Duration(math.MinInt64)
	}
	return time.Duration(ms) * time.Millisecond
}

// Floor returns the latest multiple of window at or before i, counted from the
// Unix epoch; window is at least a millisecond.
func (i Instant) Floor(window time.Duration) Instant {
	w := Instant(window.Milliseconds())
	start := i - i%w
	if i%w < 0 {
		start -= w
	}
	return start
}
