package policy

import (
	"fmt"
	"time"
)

// Algorithm is one way of counting, as far as policies are concerned: the fields that a limit may set, and the memory
// that it counts in. Package count has its arithmetic.
type Algorithm struct {
	Name   string
	Memory Memory

	// Width returns the length of one counter's window, and Lasts how long after its start the counter can affect
	// decisions. Memory of counters only.
	Width, Lasts func(l *Limit) time.Duration
	// check adds the problems of a limit that are specific to this algorithm. It may be nil.
	check func(l Limit, path string, found *problems)
}

// Memory is the kind of memory that an algorithm counts in.
type Memory int

// The kinds of memory.
const (
	MemoryEvents   Memory = iota // all events, each with its instant and cost
	MemoryCounters               // a sum per window
	MemoryCells                  // a small value that changes by compare-and-set: a bucket, or sent and confirmed units
)

// The algorithms, besides those with checks in files of their own. A new one is listed in algorithms, and has a file in
// package count.
var (
	// SlidingLog keeps every event and counts those of the last window.
	SlidingLog = &Algorithm{
		Name:   "sliding-log",
		Memory: MemoryEvents,
		check: func(l Limit, path string, found *problems) {
			if l.Limit > MaxLogLimit {
				found.add(path+".limit", "%d is too large for a sliding-log, which reads a row per unit in every decision: "+
					"use at most %d, or a sliding-tail, which keeps two counters for any limit", l.Limit, MaxLogLimit)
			}
		},
	}
	// FixedWindow counts in windows that start at multiples of their length, or follow a calendar.
	FixedWindow = &Algorithm{
		Name:   "fixed-window",
		Memory: MemoryCounters,
		Width:  func(l *Limit) time.Duration { return l.Window },
		Lasts:  func(l *Limit) time.Duration { return l.Window },
	}
	// SlidingWindow counts in buckets of a window, and drops them one at a time.
	SlidingWindow = &Algorithm{
		Name:   "sliding-window",
		Memory: MemoryCounters,
		Width:  func(l *Limit) time.Duration { return l.Window / time.Duration(l.Buckets) },
		Lasts:  func(l *Limit) time.Duration { return l.Window },
		check:  checkBuckets,
	}
	// SlidingTail counts the current window whole, and a share of the one before.
	SlidingTail = &Algorithm{
		Name:   "sliding-tail",
		Memory: MemoryCounters,
		Width:  func(l *Limit) time.Duration { return l.Window },
		Lasts:  func(l *Limit) time.Duration { return 2 * l.Window },
		check: func(l Limit, path string, found *problems) {
			if l.Rounding != "" {
				oneOf(found, path+".rounding", l.Rounding, RoundDown, RoundUp)
			}
		},
	}
	// LeakyBucket holds admitted units, and leaks its limit in every window.
	LeakyBucket = &Algorithm{Name: "leaky-bucket", Memory: MemoryCells}
	// TokenBucket holds up to a burst of tokens, and is refilled by its limit in every window.
	TokenBucket = &Algorithm{Name: "token-bucket", Memory: MemoryCells, check: checkBurst}
)

// algorithms lists all algorithms, in the order in which users see them.
var algorithms = []*Algorithm{SlidingLog, FixedWindow, SlidingWindow, SlidingTail, LeakyBucket, TokenBucket, Conversion, Concurrent}

// Algorithms returns the names of all algorithms.
func Algorithms() []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.Name
	}
	return names
}

// AlgorithmByName returns the algorithm called name, false if there is none.
func AlgorithmByName(name string) (*Algorithm, bool) {
	for _, a := range algorithms {
		if a.Name == name {
			return a, true
		}
	}
	return nil, false
}

func checkBuckets(l Limit, path string, found *problems) {
	switch {
	case l.Buckets < MinBuckets || l.Buckets > MaxBuckets:
		found.add(path+".buckets", "%d is out of range: use %d to %d", l.Buckets, MinBuckets, MaxBuckets)
	case l.Window%(time.Duration(l.Buckets)*time.Millisecond) != 0:
		found.add(path+".buckets", "%d do not divide a window of %s into whole milliseconds: %s",
			l.Buckets, FormatWindow(l.Window), bucketsFor(l.Window))
	}
}

// bucketsFor returns advice on a number of buckets that divides window into whole milliseconds: the one nearest to
// DefaultBuckets.
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

func checkBurst(l Limit, path string, found *problems) {
	switch least := smallestBurst(&l); {
	case l.Burst != l.Limit && (l.Burst < 0 || l.Burst > MaxLimit): // a limit out of range is a problem of its own
		found.add(path+".burst", "%d is out of range: use 1 to %d", l.Burst, int64(MaxLimit))
	case l.Limit == 0 && l.Burst > 0:
		found.add(path+".burst", "a limit of 0 denies always: remove the burst")
	case l.Burst > 0 && l.Burst < least:
		found.add(path+".burst", "a burst of %d loses tokens of %d in %s: time counts in whole milliseconds, "+
			"and the tokens of a millisecond must fit: use a burst of at least %d", l.Burst, l.Limit, FormatWindow(l.Window), least)
	}
}

// slowRefill is the number of milliseconds for a unit's refill from which on any burst is allowed. With such a slow refill,
// a bucket with too small a burst waits up to a millisecond too long for each unit, which is at most a tenth of the time.
const slowRefill = 10

// smallestBurst returns the smallest burst of l with which requests of cost 1 get all of its limit. p/q units are refilled
// in each millisecond. A caller that takes as much as it can leaves less than one token: (q − 1)/q at most.
func smallestBurst(l *Limit) int64 {
	p, q := l.Limit, l.Window.Milliseconds()
	if p <= 0 || p > MaxLimit || q <= 0 || slowRefill*p <= q {
		return 1
	}
	for a, b := q, p; ; a, b = b, a%b { // reduces p/q by the greatest common divisor
		if b == 0 {
			p, q = p/a, q/a
			break
		}
	}
	return 1 + (p-1+q-1)/q // the bucket must hold (q − 1)/q and p/q
}
