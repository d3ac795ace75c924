package embedded

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	// sweepEvery is the interval in which one shard after the other is swept, so each is swept every 32 s, and no sweep takes
	// long.
	sweepEvery = 500 * time.Millisecond
	// evictTries is the number of keys of a full shard that are checked for expiry before a new key is refused.
	evictTries = 64
)

// Run drops expired keys and, if there is a disk, saves changes, until ctx ends. Then it saves once more, and returns
// the error of that save. Without Run, expired keys are dropped only when there is no room for a new one, and nothing
// is saved.
func (s *Store) Run(ctx context.Context) error {
	var sweeps sync.WaitGroup
	sweeps.Go(func() { s.sweeps(ctx) })
	err := s.saves(ctx)
	sweeps.Wait()
	return err
}

func (s *Store) sweeps(ctx context.Context) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	var clock steps
	bound := 0 // shards that were not swept since the clock was set back
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if clock.wasSetBack(s) {
				bound = shardCount
			}
			s.shards[next%shardCount].sweep(s, bound > 0)
			bound = max(0, bound-1)
			s.feed.sweep(s.instant())
		}
	}
}

// Sweep drops all expired keys at once. It is for simulations, which advance the clock.
func (s *Store) Sweep() {
	for i := range s.shards {
		s.shards[i].sweep(s, false)
	}
	s.feed.sweep(s.instant())
}

func (sh *shard) sweep(clock *Store, bound bool) {
	dated, passed := clock.dated(), clock.instant()
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for e := range sh.entries.all() {
		if bound {
			e.bound(dated)
		}
		if e.isOver(dated, passed) {
			sh.drop(clock, e)
		}
	}
}

// evict drops an expired key, if there is one among the next few that is not in w.
func (sh *shard) evict(clock *Store, w []store.Write) bool {
	dated, passed := clock.dated(), clock.instant()
	for range evictTries {
		e := sh.entries.next()
		if e.isOver(dated, passed) && !slices.ContainsFunc(w, func(w store.Write) bool { return w.Key == e.key }) {
			sh.drop(clock, e)
			return true
		}
	}
	return false
}

// instant returns the time by which data with a time to live expires: the start of the store plus the monotonic time since
// then. A change of the clock does not affect it.
func (s *Store) instant() store.Instant {
	return store.InstantOf(s.started.Add(s.now().Sub(s.started)))
}

// clockLead returns how far the clock is ahead of instant because it was changed since the start. A negative result means that
// the clock is behind.
func (s *Store) clockLead() store.Instant { return store.InstantOf(s.now()) - s.instant() }

// dated returns the time by which data with a date of expiry expires: the earlier one of the clock and instant. So nothing
// expires early because the clock was set forward, or because time passes while it is set back.
func (s *Store) dated() store.Instant {
	now := s.now()
	return min(store.InstantOf(now), store.InstantOf(s.started.Add(now.Sub(s.started))))
}

// steps detects steps back of the clock.
type steps struct{ lead store.Instant }

// wasSetBack reports whether the clock was set back by more than a second since the last call.
func (s *steps) wasSetBack(clock *Store) bool {
	before := s.lead
	s.lead = clock.clockLead()
	return s.lead < before-1000
}
