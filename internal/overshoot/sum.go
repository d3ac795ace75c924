package overshoot

import (
	"slices"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Add adds another instance's report on the same policy, and keeps the top worst keys. Episodes and open keys are
// counted by instance: a key past its limit on two instances has one on each.
func (r *Report) Add(other *Report, top int) {
	r.Since, r.WorstSince = earlier(r.Since, other.Since), earlier(r.WorstSince, other.WorstSince)
	r.Attempts, r.Units, r.Dropped = r.Attempts+other.Attempts, r.Units+other.Units, r.Dropped+other.Dropped
	r.Episodes, r.Open = r.Episodes+other.Episodes, r.Open+other.Open
	r.PerEpisode = sumOf(&r.PerEpisode, &other.PerEpisode, attemptBounds)
	r.Times = sumOf(&r.Times, &other.Times, timesBounds)
	all := addWorst(addWorst(nil, r, other), other, r)
	r.Worst, r.Unlisted = cutWorst(all, r.Unlisted+other.Unlisted, top)
}

// addWorst adds the worst keys of r that all does not have, with their attempts in other.
func addWorst(all []Heavy, r, other *Report) []Heavy {
	there := make(map[store.Key]Heavy, len(other.Worst))
	for _, h := range other.Worst {
		there[h.Key] = h
	}
	for _, h := range r.Worst {
		if slices.ContainsFunc(all, func(a Heavy) bool { return a.Key == h.Key }) {
			continue
		}
		if o, listed := there[h.Key]; listed {
			h.Attempts, h.Error = h.Attempts+o.Attempts, h.Error+o.Error
		} else {
			h.Error += other.Unlisted
		}
		all = append(all, h)
	}
	return all
}

// sumOf returns the spread of the values of a and b, which have these bounds.
func sumOf(a, b *Spread, bounds []float64) Spread {
	sum := newSpread(bounds)
	for _, s := range []*Spread{a, b} {
		before := int64(0)
		for _, bucket := range s.Buckets {
			i, _ := slices.BinarySearch(bounds, bucket.AtMost)
			sum.counts[i] += bucket.Count - before
			before = bucket.Count
		}
		sum.counts[len(bounds)] += s.Count - before
		sum.total, sum.most = sum.total+s.Count, max(sum.most, s.Max)
	}
	return sum.show()
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
