package cassandra

import (
	"testing"
	"time"
)

func TestMedianOfNodesClocks(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		ahead []time.Duration
		want  time.Duration
	}{
		{[]time.Duration{3 * ms}, 3 * ms},
		{[]time.Duration{150 * ms, 0}, 0},
		{[]time.Duration{-150 * ms, 0}, 0},
		{[]time.Duration{150 * ms, -200 * ms}, 150 * ms},
		{[]time.Duration{900 * ms, 1 * ms, 2 * ms}, 2 * ms},
		{[]time.Duration{900 * ms, 800 * ms, 1 * ms, 2 * ms}, 2 * ms},
	} {
		var samples []clockSample
		for _, ahead := range c.ahead {
			samples = append(samples, clockSample{ahead: ahead})
		}
		if got := medianOf(samples).ahead; got != c.want {
			t.Errorf("of %v: %v, want %v", c.ahead, got, c.want)
		}
	}
}

// TestClockAtTheTolerance asks a node, whose clock is right, at every part of its millisecond:
// a clock that is off by no more than is tolerated must never seem to be off by more.
func TestClockAtTheTolerance(t *testing.T) {
	const off, us = 100 * time.Millisecond, time.Microsecond
	start := time.UnixMilli(1_800_000_000_000)
	for _, trip := range []time.Duration{0, 200 * us, 1500 * us} {
		for _, ahead := range []time.Duration{-off, 0, off} {
			for part := range 20 {
				began := start.Add(time.Duration(part) * 50 * us)
				ended := began.Add(trip)
				for _, answered := range []time.Time{began, ended} {
					said := answered.Truncate(time.Millisecond).Add(3 * us) // the fourth that was asked in it
					sample := newClockSample(began, began.Add(ahead), ended, said)
					got := sample.certain()
					if got*ahead < 0 || got.Abs() > ahead.Abs() || got.Abs() < ahead.Abs()-trip-nodeTick {
						t.Errorf("%v ahead, asked %v into a millisecond with a round trip of %v: %v", ahead, began.Sub(start), trip, got)
					}
				}
			}
		}
	}
}

// A process that stood still before it read its clock does not take it for one that is behind.
func TestClockThatWasReadLate(t *testing.T) {
	const gap, busy = time.Minute, 10 * time.Second // of this machine, between two lines
	read := time.Now()
	for _, ahead := range []time.Duration{0, -time.Hour, time.Hour} {
		r := &clockReading{ahead: ahead, wall: read.Round(0), at: read.Add(-gap), gap: gap}
		if got := r.now(time.Now()); got < min(0, ahead)-busy || got > max(0, ahead) {
			t.Errorf("%v ahead: %v", ahead, got)
		}
	}
}
