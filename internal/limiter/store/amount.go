package store

import (
	"math"
	"math/bits"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
)

// Bucket is the fill of a leaky or token bucket: units that have not drained yet.
type Bucket struct {
	Limit policy.LimitID
	At    Instant // the instant at which it had this Fill
	Fill  Amount
}

// SetBucket replaces the bucket of b's limit in s by b.
func (s *State) SetBucket(b Bucket) {
	for i := range s.Buckets {
		if s.Buckets[i].Limit == b.Limit {
			s.Buckets[i] = b
			return
		}
	}
	s.Buckets = append(s.Buckets, b)
}

// Amount is a number of parts of a unit. Each part is 1/W_ms of a unit, where W_ms is the limit's window in milliseconds.
// So a bucket that drains its limit in a window loses in each millisecond as many parts as its limit has units, without a
// fraction.
type Amount struct{ Hi, Lo uint64 }

// AmountOf returns units × parts. It saturates.
func AmountOf(units, parts int64) Amount {
	hi, lo := bits.Mul64(uint64(max(0, units)), uint64(parts))
	return Amount{hi, lo}
}

// Plus returns a + b, or the largest amount if that does not fit.
func (a Amount) Plus(b Amount) Amount {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, over := bits.Add64(a.Hi, b.Hi, carry)
	if over != 0 {
		return Amount{Hi: ^uint64(0), Lo: ^uint64(0)}
	}
	return Amount{hi, lo}
}

// Minus returns a − b, or 0 if b is larger.
func (a Amount) Minus(b Amount) Amount {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, under := bits.Sub64(a.Hi, b.Hi, borrow)
	if under != 0 {
		return Amount{}
	}
	return Amount{hi, lo}
}

// Over returns a / parts, rounded up, and at most the largest int64. Division by 0 returns the largest int64, too.
func (a Amount) Over(parts int64) int64 {
	if a.Hi >= uint64(parts) { // the quotient does not fit 64 bits
		return math.MaxInt64
	}
	units, rest := bits.Div64(a.Hi, a.Lo, uint64(parts))
	if units >= math.MaxInt64 {
		return math.MaxInt64
	}
	if rest > 0 {
		units++
	}
	return int64(units)
}
