package count

import (
	"math/bits"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// slidingTail counts all of the current fixed window, and the share of the previous one that a window up to now still
// covers. It needs two counters for any limit. It assumes that units were spread evenly over the previous window, as
// Cloudflare does in "How we built rate limiting capable of scaling to millions of domains".
var slidingTail = &algorithm{
	Algorithm: policy.SlidingTail,
	used:      usedOfTail,
	wait:      waitForTail,
	steady:    steadyTail,
}

// usedOfTail returns previous × (W − elapsed)/W + current, rounded as the limit says. current includes all later
// windows: another instance's clock may be ahead, and this one's may have stepped back.
func usedOfTail(r *Rule, s *store.State, now store.Instant) int64 {
	start := now.Floor(r.Window)
	previous, current := s.UnitsAt(r.ID, start.Add(-r.Window)), s.UnitsFrom(r.ID, start)
	return store.AddSaturating(current, int64(r.tailOf(uint64(previous), now-start)))
}

// tailOf returns how many of the previous window's units count when this much of the current window has elapsed.
func (r *Rule) tailOf(previous uint64, elapsed store.Instant) uint64 {
	w := uint64(r.Window.Milliseconds())
	hi, lo := bits.Mul64(previous, w-uint64(elapsed))
	tail, rest := bits.Div64(hi, lo, w)
	if rest > 0 && r.Rounding == policy.RoundUp {
		tail++
	}
	return tail
}

// steadyTail returns the instant at which the previous window's share falls by a unit, or the end of now's window if it
// does not fall before.
func steadyTail(r *Rule, s *store.State, now store.Instant) store.Instant {
	start := now.Floor(r.Window)
	end := start.Add(r.Window)
	previous, w := uint64(s.UnitsAt(r.ID, start.Add(-r.Window))), uint64(r.Window.Milliseconds())
	if previous == 0 {
		return end
	}
	tail := r.tailOf(previous, now-start)
	left := uint64(0) // time left in the window when the share falls by a unit
	switch {
	case tail == 0:
	case r.Rounding == policy.RoundUp: // previous × left ≤ (tail − 1) × W
		hi, lo := bits.Mul64(tail-1, w)
		left, _ = bits.Div64(hi, lo, previous)
	default: // previous × left < tail × W
		hi, lo := bits.Mul64(tail, w)
		var rest uint64
		if left, rest = bits.Div64(hi, lo, previous); rest == 0 {
			left--
		}
	}
	return end - store.Instant(left)
}

// waitForTail returns the time until cost fits beside the units counted now: later in this window, as the previous one's
// share falls, or in a later window.
func waitForTail(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	for start := now.Floor(r.Window); ; {
		previous, current := s.UnitsAt(r.ID, start.Add(-r.Window)), s.UnitsFrom(r.ID, start)
		if elapsed := r.tailFits(previous, current, cost); elapsed < r.Window {
			return max(0, start.Add(elapsed).Sub(now))
		}
		next := start.Add(r.Window)
		if current > r.Limit.Limit-cost { // not before the first window that counts has ended
			next = max(next, s.FirstFrom(r.ID, start).Add(r.Window))
		}
		start = next
	}
}

// tailFits returns the time from the window's start until cost fits beside the previous and the current count; the
// window's length if it never fits within it.
func (r *Rule) tailFits(previous, current, cost int64) time.Duration {
	room := r.Limit.Limit - cost - current
	if room < 0 {
		return r.Window
	}
	if previous <= room {
		return 0
	}
	w := uint64(r.Window.Milliseconds())
	var hi, lo uint64
	if r.Rounding == policy.RoundUp { // previous × left ≤ room × W
		hi, lo = bits.Mul64(uint64(room), w)
	} else { // previous × left < (room + 1) × W
		var borrow uint64
		hi, lo = bits.Mul64(uint64(room)+1, w)
		lo, borrow = bits.Sub64(lo, 1, 0)
		hi -= borrow
	}
	left, _ := bits.Div64(hi, lo, uint64(previous))
	return r.Window - time.Duration(left)*time.Millisecond
}

// mulLess reports whether a × b < c × d for numbers that are not negative.
func mulLess(a, b, c, d int64) bool {
	hi1, lo1 := bits.Mul64(uint64(a), uint64(b))
	hi2, lo2 := bits.Mul64(uint64(c), uint64(d))
	return hi1 < hi2 || hi1 == hi2 && lo1 < lo2
}
