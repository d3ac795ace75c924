package join

import "time"

// Bounds on the number of alike calls in a request. The service may decide them one after the other, and the whole
// request waits.
const (
	// minAlike is the number at first. While full groups are answered within quick, as by a service that decides in
	// memory, the number doubles up to maxAlike. A group that takes twice as long as quick, or has no answer, resets it
	// to minAlike.
	minAlike = 8
	maxAlike = 32
	quick    = 2 * time.Millisecond
	// A service is slow if slowAlike or more alike calls take slowCall each, as over a store, and no group of them was
	// faster during slowSpan: on a busy machine, single groups are late by chance. A slow service joins alike calls
	// itself if they come as requests of their own, so they do for slowFor.
	slowAlike = 4
	slowCall  = time.Millisecond
	slowSpan  = 50 * time.Millisecond
	slowFor   = 5 * time.Second
)

// Slot is a hash of a demand's policy and identifier, less than Slots, by which alike calls are found. Other demands in
// the same slot are delayed by a request.
type Slot uint16

// Slots is large enough that a full group has hardly ever nine calls in one slot by chance.
const Slots = 1 << 12

// alike is a queue's state about alike calls.
type alike struct {
	underWay  [Slots]int32 // number of demands under way in each slot
	together  int          // number of alike calls that may share a request: minAlike to maxAlike
	slowUntil time.Time    // until then alike calls go as requests of their own
	slowSince time.Time    // since then groups of alike calls are slow; zero: the last one was not
}

// isSlow reports whether alike calls go as requests of their own.
func (a *alike) isSlow() bool { return !a.slowUntil.IsZero() && time.Now().Before(a.slowUntil) }

// has reports whether a demand in one of these slots is under way.
func (a *alike) has(list []Slot) bool {
	for _, s := range list {
		if a.underWay[s] > 0 {
			return true
		}
	}
	return false
}

// mark adds n to the number of demands under way in each of these slots.
func (a *alike) mark(list []Slot, n int32) {
	for _, s := range list {
		a.underWay[s] += n
	}
}

// learn adapts to a group that was answered, or failed with err. most is its number of alike demands, and calls its
// number of calls.
func (a *alike) learn(began, ended time.Time, most, calls int, err error) {
	if most < slowAlike {
		return
	}
	took := ended.Sub(began)
	switch {
	case err != nil || took >= 2*quick:
		a.together = minAlike
	case took < quick && most >= a.together && calls >= a.together: // one call may have many alike demands
		a.together = min(2*a.together, maxAlike)
	}
	switch {
	case took < time.Duration(most)*slowCall:
		a.slowSince = time.Time{}
	case a.slowSince.IsZero():
		a.slowSince = began
	case ended.Sub(a.slowSince) >= slowSpan:
		a.slowUntil, a.slowSince = ended.Add(slowFor), time.Time{}
	}
}
