package overshoot

import (
	"math"
	"slices"
)

// Spread is the distribution of values. The zero Spread has none.
type Spread struct {
	Count         int64
	P50, P90, P99 float64 // upper bounds of that share of the values, as exact as Buckets
	Max           float64 // exact
	Buckets       []Bucket
}

// Bucket is the number of values up to a bound. A bound is at most half as much again as the one before, except from 2
// to 3.
type Bucket struct {
	AtMost float64
	Count  int64
}

// attemptBounds are the bounds of attempts, with all those of the histogram in the metrics. Each episode has at least
// one attempt.
var attemptBounds = upToAMillion(1, 2, 3, 4, 5, 6, 8, 10)

// timesBounds are the bounds of multiples of a limit.
var timesBounds = upToAMillion(1.1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)

// upToAMillion returns first, which ends with ten, and ten more bounds for each power of ten. Values above a million
// are only in the counts and the maximum.
func upToAMillion(first ...float64) []float64 {
	bounds := first
	for scale := 1.0; scale < 1e5; scale *= 10 {
		for _, b := range []float64{12, 15, 20, 25, 30, 40, 50, 60, 80, 100} {
			bounds = append(bounds, b*scale)
		}
	}
	return bounds
}

// spread counts values by its bounds.
type spread struct {
	bounds []float64 // ascending; shared
	counts []int64   // by the first bound that is not below the value; the last for those above all bounds
	total  int64
	most   float64
}

func newSpread(bounds []float64) spread {
	return spread{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (s *spread) clone() spread {
	c := *s
	c.counts = slices.Clone(s.counts)
	return c
}

func (s *spread) add(value float64) {
	i, _ := slices.BinarySearch(s.bounds, value)
	s.counts[i]++
	s.total++
	s.most = max(s.most, value)
}

// quantile returns the least bound of a share of the values.
func (s *spread) quantile(share float64) float64 {
	want := int64(math.Ceil(share * float64(s.total)))
	for i, sum := 0, int64(0); i < len(s.bounds); i++ {
		if sum += s.counts[i]; sum >= want {
			return min(s.bounds[i], s.most)
		}
	}
	return s.most
}

// show returns s as a Spread, with buckets up to the one with all values.
func (s *spread) show() Spread {
	shown := Spread{Count: s.total, P50: s.quantile(.5), P90: s.quantile(.9), P99: s.quantile(.99), Max: s.most}
	for i, sum := 0, int64(0); i < len(s.bounds) && sum < s.total; i++ {
		sum += s.counts[i]
		shown.Buckets = append(shown.Buckets, Bucket{AtMost: s.bounds[i], Count: sum})
	}
	return shown
}
