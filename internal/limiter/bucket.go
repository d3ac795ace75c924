package limiter

import (
	"math"
	"math/bits"
	"time"
)

// bucket is what a leaky or token bucket holds: units that have not drained yet.
type bucket struct {
	limit LimitID
	at    Instant // when it held level
	level amount
}

// levelAt returns what the bucket of r holds at now. A clock that stepped back
// finds what it held last.
func (r *rule) levelAt(s *State, now Instant) (level amount, at Instant) {
	for i := range s.levels {
		if b := &s.levels[i]; b.limit == r.id {
			drained := amountOf(r.Limit.Limit, max(0, int64(now-b.at)))
			return b.level.minus(drained), max(now, b.at)
		}
	}
	return amount{}, now
}

// pour adds units to the bucket of r.
func (r *rule) pour(s *State, now Instant, units int64) {
	level, at := r.levelAt(s, now)
	s.setLevel(bucket{limit: r.id, at: at, level: level.plus(amountOf(units, r.Window.Milliseconds()))})
}

// scoop gives units back to the bucket of r. Of those that were poured later than the bucket says
// that it holds anything, by a clock that was set back since, nobody knows what has drained:
// they stay.
func (r *rule) scoop(s *State, now, poured Instant, units int64) {
	level, at := r.levelAt(s, now)
	if poured > at {
		return
	}
	left := amountOf(units, r.Window.Milliseconds()).minus(amountOf(r.Limit.Limit, max(0, int64(at-poured))))
	s.setLevel(bucket{limit: r.id, at: at, level: level.minus(left)})
}

// setLevel puts b in the place of what s has of its limit.
func (s *State) setLevel(b bucket) {
	for i := range s.levels {
		if s.levels[i].limit == b.limit {
			s.levels[i] = b
			return
		}
	}
	s.levels = append(s.levels, b)
}

// usedOfBucket returns the units in the bucket, a part of one counted as one: what
// remains can be spent at once.
func usedOfBucket(r *rule, s *State, now Instant) int64 {
	level, _ := r.levelAt(s, now)
	return level.over(r.Window.Milliseconds())
}

// waitForBucket returns the time until so much has drained that cost fits.
func waitForBucket(r *rule, s *State, now Instant, cost int64) time.Duration {
	level, at := r.levelAt(s, now)
	excess := level.minus(amountOf(r.capacity-cost, r.Window.Milliseconds()))
	if excess == (amount{}) {
		return 0
	}
	return (at + min(Distant, Instant(excess.over(r.Limit.Limit)))).Sub(now)
}

// amount is a number of parts of a unit, 1/W_ms each with W_ms the limit's window in
// milliseconds, so that a bucket that drains its limit in a window loses as many
// parts a millisecond as its limit has units: exact, without a fraction anywhere.
type amount struct{ hi, lo uint64 }

// amountOf returns units × parts. It saturates.
func amountOf(units, parts int64) amount {
	hi, lo := bits.Mul64(uint64(max(0, units)), uint64(parts))
	return amount{hi, lo}
}

// plus returns a + b, or the largest amount where that does not fit.
func (a amount) plus(b amount) amount {
	lo, carry := bits.Add64(a.lo, b.lo, 0)
	hi, over := bits.Add64(a.hi, b.hi, carry)
	if over != 0 {
		return amount{^uint64(0), ^uint64(0)}
	}
	return amount{hi, lo}
}

// minus returns a − b, 0 where that were below.
func (a amount) minus(b amount) amount {
	lo, borrow := bits.Sub64(a.lo, b.lo, 0)
	hi, under := bits.Sub64(a.hi, b.hi, borrow)
	if under != 0 {
		return amount{}
	}
	return amount{hi, lo}
}

// over returns a / parts, rounded up and at most the largest int64, which is also
// what dividing by 0 gives.
func (a amount) over(parts int64) int64 {
	if a.hi >= uint64(parts) { // the quotient does not fit 64 bits
		return math.MaxInt64
	}
	units, rest := bits.Div64(a.hi, a.lo, uint64(parts))
	if units >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		units++
	}
	return int64(units)
}
