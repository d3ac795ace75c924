package limiter

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// slidingWindow counts in buckets and forgets them one at a time, each as soon as
// its start has left the window: a counter per bucket for any limit. What came late
// in a bucket is forgotten early, so up to twice the limit may pass within
// W·(1 − 1/buckets); more buckets, less of it.
var slidingWindow = &algorithm{
	Name:   "sliding-window",
	memory: memoryCounters,
	used:   usedOfBuckets,
	wait:   waitForBuckets,
	steady: steadyBuckets,
	width:  func(l *Limit) time.Duration { return l.Window / time.Duration(l.Buckets) },
	lasts:  func(l *Limit) time.Duration { return l.Window },
	check: func(l Limit, path string, found *problems) {
		switch {
		case l.Buckets < MinBuckets || l.Buckets > MaxBuckets:
			found.add(path+".buckets", "%d is out of range: use %d to %d", l.Buckets, MinBuckets, MaxBuckets)
		case l.Window%(time.Duration(l.Buckets)*time.Millisecond) != 0:
			found.add(path+".buckets", "%d do not divide a window of %s into whole milliseconds: %s",
				l.Buckets, FormatWindow(l.Window), bucketsFor(l.Window))
		}
	},
}

// bucketsFor says by how many buckets window can be divided into whole milliseconds: by as
// near to DefaultBuckets as there are.
func bucketsFor(window time.Duration) string {
	best, millis := 0, window.Milliseconds()
	for n := MinBuckets; n <= MaxBuckets; n++ {
		if millis%int64(n) == 0 && (best == 0 || abs(n-DefaultBuckets) < abs(best-DefaultBuckets)) {
			best = n
		}
	}
	if best == 0 {
		return fmt.Sprintf("no number from %d to %d does, use another window", MinBuckets, MaxBuckets)
	}
	return fmt.Sprintf("use a number that does, such as %d", best)
}

func abs(n int) int { return max(n, -n) }

// usedOfBuckets returns the counts of the buckets that start after now − window,
// later ones too, so that a clock that stepped back admits nothing more.
func usedOfBuckets(r *rule, s *State, now Instant) int64 {
	return s.unitsFrom(r.id, now.Add(-r.Window)+1)
}

// steadyBuckets returns when the oldest bucket that counts leaves.
func steadyBuckets(r *rule, s *State, now Instant) Instant {
	from, until := now.Add(-r.Window)+1, now.Add(r.Window)
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start >= from && c.Epoch >= s.Reset && c.Limit == r.id {
			until = min(until, c.Start.Add(r.Window))
		}
	}
	return until
}

// waitForBuckets lets buckets go, the oldest first, until cost fits. It goes the other way,
// from the newest on, and adds up: the last bucket after which there is room has to go.
func waitForBuckets(r *rule, s *State, now Instant, cost int64) time.Duration {
	var memory [32]windowUnits // most need no more
	held := s.appendFrom(memory[:0], r.id, now.Add(-r.Window)+1)
	slices.SortFunc(held, func(a, b windowUnits) int { return cmp.Compare(a.start, b.start) })
	room, newer, all, wait := r.Limit.Limit-cost, int64(0), int64(0), time.Duration(0)
	for i := len(held) - 1; i >= 0; i-- {
		if i+1 < len(held) && held[i].start != held[i+1].start {
			newer = all
		}
		if newer <= room {
			wait = held[i].start.Add(r.Window).Sub(now)
		}
		all = addSaturating(all, held[i].units)
	}
	if all <= room {
		return 0
	}
	return wait
}
