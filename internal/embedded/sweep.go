package embedded

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	// sweepEvery is how often one shard is freed of expired keys, so that each is
	// visited every 32 s and the longest pause is that of one shard.
	sweepEvery = 500 * time.Millisecond
	// evictTries is how many keys of a full shard are looked at for one that has
	// expired before a new key is refused.
	evictTries = 64
)

// Run forgets keys whose last event, counter, cell and reset have expired, and saves changes if
// there is a disk, until ctx ends. It saves once more then, and returns an error if that fails.
// Without it keys are forgotten only when there is no room, and nothing is saved.
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
	bound := 0 // the shards that are not visited yet since the clock was set back
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

// Sweep forgets at once what Run forgets by and by, for a clock that is turned.
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

// evict makes room for one key, if one of the next few has expired and is not about to
// be written.
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

// instant is the time that expiry after a duration goes by: the start, and the time since by the monotonic clock. So
// nothing expires because the clock is set.
func (s *Store) instant() store.Instant {
	return store.InstantOf(s.started.Add(s.now().Sub(s.started)))
}

// clockLead returns how far the clock is ahead of instant, because it was set since the start. It
// is below 0 if the clock is behind.
func (s *Store) clockLead() store.Instant { return store.InstantOf(s.now()) - s.instant() }

// dated is the time that expiry at a date goes by. Nothing expires because the clock is set
// ahead, nor by time that passes while it is set back.
func (s *Store) dated() store.Instant {
	now := s.now()
	return min(store.InstantOf(now), store.InstantOf(s.started.Add(now.Sub(s.started))))
}

// steps notices when the clock is set back.
type steps struct{ lead store.Instant }

// wasSetBack reports whether the clock was set back, by more than a second, since it was last asked.
func (s *steps) wasSetBack(clock *Store) bool {
	before := s.lead
	s.lead = clock.clockLead()
	return s.lead < before-1000
}
