package count

import (
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// LevelAt returns what the bucket of r holds at now. A clock that stepped back
// finds what it held last.
func (r *Rule) LevelAt(s *store.State, now store.Instant) (level store.Amount, at store.Instant) {
	for i := range s.Levels {
		if b := &s.Levels[i]; b.Limit == r.ID {
			drained := store.AmountOf(r.Limit.Limit, max(0, int64(now-b.At)))
			return b.Level.Minus(drained), max(now, b.At)
		}
	}
	return store.Amount{}, now
}

// Pour adds units to the bucket of r.
func (r *Rule) Pour(s *store.State, now store.Instant, units int64) {
	level, at := r.LevelAt(s, now)
	s.SetLevel(store.Bucket{Limit: r.ID, At: at, Level: level.Plus(store.AmountOf(units, r.Window.Milliseconds()))})
}

// scoop gives units back to the bucket of r. Of those that were poured later than the bucket says
// that it holds anything, by a clock that was set back since, nobody knows what has drained:
// they stay.
func (r *Rule) scoop(s *store.State, now, poured store.Instant, units int64) {
	level, at := r.LevelAt(s, now)
	if poured > at {
		return
	}
	left := store.AmountOf(units, r.Window.Milliseconds()).Minus(store.AmountOf(r.Limit.Limit, max(0, int64(at-poured))))
	s.SetLevel(store.Bucket{Limit: r.ID, At: at, Level: level.Minus(left)})
}

// usedOfBucket returns the units in the bucket, a part of one counted as one: what
// remains can be spent at once.
func usedOfBucket(r *Rule, s *store.State, now store.Instant) int64 {
	level, _ := r.LevelAt(s, now)
	return level.Over(r.Window.Milliseconds())
}

// redateLevel dates as of now a level that is dated later.
func (r *Rule) redateLevel(s *store.State, now store.Instant) {
	for i := range s.Levels {
		if b := &s.Levels[i]; b.Limit == r.ID {
			b.At = min(b.At, now)
		}
	}
}

// waitForBucket returns the time until so much has drained that cost fits.
func waitForBucket(r *Rule, s *store.State, now store.Instant, cost int64) time.Duration {
	level, at := r.LevelAt(s, now)
	excess := level.Minus(store.AmountOf(r.Capacity-cost, r.Window.Milliseconds()))
	if excess == (store.Amount{}) {
		return 0
	}
	return (at + min(store.Distant, store.Instant(excess.Over(r.Limit.Limit)))).Sub(now)
}
