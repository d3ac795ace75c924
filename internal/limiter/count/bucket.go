package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// FillAt returns the fill of r's bucket at now, and the instant of that fill. If a clock has stepped back, that is the
// later instant of the stored fill.
func (r *Rule) FillAt(s *store.State, now store.Instant) (fill store.Amount, at store.Instant) {
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Limit == r.ID {
			drained := store.AmountOf(r.Limit.Limit, max(0, int64(now-b.At)))
			return b.Fill.Minus(drained), max(now, b.At)
		}
	}
	return store.Amount{}, now
}

// AddToBucket adds units to the bucket of r.
func (r *Rule) AddToBucket(s *store.State, now store.Instant, units int64) {
	fill, at := r.FillAt(s, now)
	s.SetBucket(store.Bucket{Limit: r.ID, At: at, Fill: fill.Plus(store.AmountOf(units, r.Window.Milliseconds()))})
}

// removeFromBucket removes units that were added at the instant added from r's bucket, unless they have drained. The kept
// units of the same addition drain first. If added is later than the bucket's own time, it was dated by a clock that has
// since been set back. How much has drained is then not known, and the units stay.
func (r *Rule) removeFromBucket(s *store.State, now, added store.Instant, units, kept int64) {
	fill, at := r.FillAt(s, now)
	if added > at {
		return
	}
	window := r.Window.Milliseconds()
	drained := store.AmountOf(r.Limit.Limit, max(0, int64(at-added))).Minus(store.AmountOf(kept, window))
	left := store.AmountOf(units, window).Minus(drained)
	s.SetBucket(store.Bucket{Limit: r.ID, At: at, Fill: fill.Minus(left)})
}

// usedOfBucket returns the units in the bucket, rounded up, so that the remaining units can be spent at once.
func usedOfBucket(r *Rule, s *store.State, now store.Instant) int64 {
	fill, _ := r.FillAt(s, now)
	return fill.Over(r.Window.Milliseconds())
}

// redateBucket gives the time now to a fill with a later time.
func (r *Rule) redateBucket(s *store.State, now store.Instant) {
	for i := range s.Buckets {
		if b := &s.Buckets[i]; b.Limit == r.ID {
			b.At = min(b.At, now)
		}
	}
}

// waitForBucket returns the time until enough has drained for cost to fit.
func waitForBucket(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	fill, at := r.FillAt(s, now)
	excess := fill.Minus(store.AmountOf(r.Capacity-cost, r.Window.Milliseconds()))
	if excess == (store.Amount{}) {
		return 0
	}
	return (at + min(store.Distant, store.Instant(excess.Over(r.Limit.Limit)))).Sub(now)
}
