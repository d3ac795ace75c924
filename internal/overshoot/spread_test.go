package overshoot

import (
	"slices"
	"testing"
)

// TestSpread holds that quantiles are never below the exact ones, and above them by less than the distance of bounds.
func TestSpread(t *testing.T) {
	for _, c := range []struct {
		most          int // values are 1 to most
		p50, p90, p99 float64
	}{
		{1, 1, 1, 1}, {2, 1, 2, 2}, {10, 5, 10, 10}, {100, 50, 100, 100}, {110, 60, 100, 110}, {1000, 500, 1000, 1000},
	} {
		s := newSpread(attemptBounds)
		for v := range c.most {
			s.add(float64(v + 1))
		}
		got := s.show()
		if got.P50 != c.p50 || got.P90 != c.p90 || got.P99 != c.p99 || got.Max != float64(c.most) || got.Count != int64(c.most) {
			t.Errorf("1 to %d: %+v", c.most, got)
		}
	}
}

// TestBuckets holds that buckets end with the first that has all values, or with the last one.
func TestBuckets(t *testing.T) {
	s := newSpread(attemptBounds)
	for _, v := range []float64{1, 1, 4} {
		s.add(v)
	}
	if got, want := s.show().Buckets, []Bucket{{1, 2}, {2, 2}, {3, 2}, {4, 3}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	s.add(1_000_001)
	if got := s.show(); got.P50 != 1 || got.P90 != 1_000_001 || got.Max != 1_000_001 {
		t.Errorf("%+v", got)
	}
	if got := s.show().Buckets; len(got) != len(attemptBounds) || got[len(got)-1] != (Bucket{1_000_000, 3}) {
		t.Errorf("%v", got)
	}
}

// TestBounds holds that bounds rise by at most half, and have all bounds of the histogram in the metrics.
func TestBounds(t *testing.T) {
	for _, bounds := range [][]float64{attemptBounds, timesBounds} {
		for i := 1; i < len(bounds); i++ {
			if step := bounds[i] / bounds[i-1]; step <= 1 || step > 1.5 && bounds[i] > 2 {
				t.Errorf("%v after %v", bounds[i], bounds[i-1])
			}
		}
	}
	for _, b := range []float64{1, 2, 3, 5, 10, 20, 50, 100, 1000, 10_000, 1_000_000} {
		if !slices.Contains(attemptBounds, b) {
			t.Errorf("%v is no bound", b)
		}
	}
}
