// Package embedded is the store in this process's memory: the default, and what
// decides while a shared store does not answer.
//
// It is sharded by key, forgets what has expired, and is bounded. It knows how to
// keep events, counters and resets, and nothing of policies or algorithms.
package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Store keeps counts in memory. It implements limiter.Exclusive; make one with
// New.
type Store struct {
	now     func() time.Time
	started time.Time
	shards  [shardCount]shard
}

var _ limiter.Exclusive = (*Store)(nil)

// Options of a Store. The zero value suits a service of its own.
type Options struct {
	MaxKeys int              // keys kept at the same time; zero: DefaultMaxKeys
	Now     func() time.Time // nil: time.Now; the same clock as the engine's
}

// DefaultMaxKeys is the MaxKeys of Options that give none: with ten events each,
// about half a GiB.
const DefaultMaxKeys = 1 << 20

const (
	// shardCount is a power of two, large enough that two cores rarely meet.
	shardCount = 64
	// sweepEvery is how often one shard is freed of expired keys, so that each is
	// visited every 32 s and the longest pause is that of one shard.
	sweepEvery = 500 * time.Millisecond
	// evictTries is how many keys of a full shard are looked at for one that has
	// expired before a new key is refused.
	evictTries = 64
)

// shard is one part of the keys. Scratch memory is reused by every Update.
type shard struct {
	mu      sync.Mutex
	entries map[limiter.Key]*entry
	maxKeys int

	state limiter.State
	write limiter.Write
}

// New returns an empty store. A nil opts means the zero Options.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{now: opts.Now}
	if s.now == nil {
		s.now = time.Now
	}
	s.started = s.now()
	maxKeys := opts.MaxKeys
	if maxKeys == 0 {
		maxKeys = DefaultMaxKeys
	}
	for i := range s.shards {
		s.shards[i].entries = make(map[limiter.Key]*entry)
		s.shards[i].maxKeys = max(1, maxKeys/shardCount)
	}
	return s
}

// Read returns what q asks for.
func (s *Store) Read(_ context.Context, q *limiter.Query) (limiter.State, error) {
	sh := s.shard(q.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var state limiter.State
	sh.entries[q.Key].read(q, &state)
	for i := range state.Logs {
		state.Logs[i].Events = append([]limiter.Event(nil), state.Logs[i].Events...)
	}
	return state, nil
}

// Write stores w. It returns an error that wraps limiter.ErrOverloaded when the
// key is new and there is no room for it.
func (s *Store) Write(_ context.Context, w *limiter.Write) error {
	sh := s.shard(w.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return s.apply(sh, sh.entries[w.Key], w)
}

// WriteAll stores all of w: nothing of it can be lost without the rest.
func (s *Store) WriteAll(ctx context.Context, w []limiter.Write) error {
	for i := range w {
		if err := s.Write(ctx, &w[i]); err != nil {
			return err
		}
	}
	return nil
}

// Update reads, lets decide judge, and writes, while it holds the keys' shards.
func (s *Store) Update(_ context.Context, q []limiter.Query, decide func([]limiter.State, []limiter.Write)) error {
	states, writes := make([]limiter.State, len(q)), make([]limiter.Write, len(q))
	for i := range q {
		sh := s.shard(q[i].Key)
		sh.mu.Lock()
		defer sh.mu.Unlock()
		sh.entries[q[i].Key].read(&q[i], &states[i])
		writes[i].Key = q[i].Key
	}
	decide(states, writes)
	for i := range writes {
		sh := s.shard(q[i].Key)
		if err := s.apply(sh, sh.entries[q[i].Key], &writes[i]); err != nil {
			return err
		}
	}
	return nil
}

// Len returns how many keys are kept.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += len(s.shards[i].entries)
		s.shards[i].mu.Unlock()
	}
	return n
}

// Run forgets keys whose last event, counter and reset have expired, until ctx
// ends. It returns nil. Without it they are forgotten only when there is no room.
func (s *Store) Run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.shards[next%shardCount].sweep(s.instant())
		}
	}
}

// instant is the time to forget by: that of the start and what has passed since by
// the monotonic clock, so that a clock that steps ahead makes nothing expire.
func (s *Store) instant() limiter.Instant {
	return limiter.InstantOf(s.started.Add(s.now().Sub(s.started)))
}

func (s *Store) shard(k limiter.Key) *shard { return &s.shards[k.Prefix()%shardCount] }

// apply stores w in e, which is nil for a key not seen before.
func (s *Store) apply(sh *shard, e *entry, w *limiter.Write) error {
	if e == nil {
		if len(sh.entries) >= sh.maxKeys && !sh.evict(s.instant()) {
			return fmt.Errorf("%w: %d keys are in memory, and none of them has expired", limiter.ErrOverloaded, shardCount*sh.maxKeys)
		}
		e = new(entry)
		sh.entries[w.Key] = e
	}
	e.apply(w, s)
	return nil
}

func (sh *shard) sweep(now limiter.Instant) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for k, e := range sh.entries {
		if e.expires <= now {
			delete(sh.entries, k)
		}
	}
}

// evict makes room for one key, if one of a few taken at random has expired.
func (sh *shard) evict(now limiter.Instant) bool {
	tries := evictTries
	for k, e := range sh.entries {
		if e.expires <= now {
			delete(sh.entries, k)
			return true
		}
		if tries--; tries == 0 {
			return false
		}
	}
	return false
}
