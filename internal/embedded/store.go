// Package embedded is the store in this process's memory: the default, and what
// decides while a shared store does not answer.
//
// It is sharded by key, forgets what has expired, and is bounded. It knows how to
// keep events, counters, cells, resets and changes, and nothing of policies or
// algorithms.
package embedded

import (
	"context"
	"fmt"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Store keeps counts in memory. It implements store.Exclusive; make one with
// New.
type Store struct {
	now     func() time.Time
	started time.Time
	shards  [shardCount]shard
	feed    feed
	saver   saver
	several sync.RWMutex // held by a write in several shards
}

var (
	_ store.Exclusive = (*Store)(nil)
	_ store.Feed      = (*Store)(nil)
)

// Options of a Store. The zero value suits a service of its own.
type Options struct {
	MaxKeys int              // keys kept at the same time; zero: DefaultMaxKeys
	Now     func() time.Time // nil: limiter.SystemClock; the same clock as the engine's

	// For Open only.
	Disk      Disk          // keeps the counts while the process is not there
	SyncEvery time.Duration // what is younger may be lost with the process; zero: DefaultSyncEvery
	Logger    *slog.Logger  // told when saving begins to fail and when it works again; nil: nobody is
}

// DefaultMaxKeys is the MaxKeys of Options that give none: with a counter each, a fourth
// of a GiB; with ten events, two thirds.
const DefaultMaxKeys = 1 << 20

const (
	// shardCount is large enough that two cores rarely meet. A shardSet has as many
	// bits.
	shardCount = 64
	// sweepEvery is how often one shard is freed of expired keys, so that each is
	// visited every 32 s and the longest pause is that of one shard.
	sweepEvery = 500 * time.Millisecond
	// evictTries is how many keys of a full shard are looked at for one that has
	// expired before a new key is refused.
	evictTries = 64
)

// shard is one part of the keys.
type shard struct {
	mu      sync.Mutex
	entries index
	maxKeys int
	one     one
	scratch scratch
	dirty   map[store.Key]struct{} // what the disk does not have as it is here; nil: there is no disk
}

// one is memory that is reused by every Update of a key in its shard.
type one struct {
	state store.State
	write store.Write
	event [1]store.Event // for decide to append to the log of a key that is not kept
}

// scratch is memory that is reused by every UpdateAll whose first shard it is in.
type scratch struct {
	states  []store.State
	writes  []store.Write
	entries []*entry // of the keys, in their order; nil for one that is not kept
}

// New returns an empty store in memory only. A nil opts means the zero Options.
func New(opts *Options) *Store {
	if opts == nil {
		opts = &Options{}
	}
	s := &Store{now: opts.Now}
	if s.now == nil {
		s.now = clock.SystemClock()
	}
	s.started = s.now()
	maxKeys := opts.MaxKeys
	if maxKeys == 0 {
		maxKeys = DefaultMaxKeys
	}
	for i := range s.shards {
		s.shards[i].entries.init()
		s.shards[i].maxKeys = max(1, maxKeys/shardCount)
	}
	return s
}

// Read returns what q asks for.
func (s *Store) Read(_ context.Context, q *store.Query) (store.State, error) {
	sh := s.shard(q.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	var state store.State
	sh.entries.find(&q.Key).read(q, &state, s)
	for i := range state.Logs {
		state.Logs[i] = store.Log{Events: append([]store.Event(nil), state.Logs[i].Events...)}
	}
	state.Cell.Value = slices.Clone(state.Cell.Value)
	return state, nil
}

// Write stores w. It returns an error that wraps store.ErrConflict when its cell is
// not the one expected, and one that wraps store.ErrOverloaded when the key is new
// and there is no room for it; nothing is stored then.
func (s *Store) Write(_ context.Context, w *store.Write) error {
	sh := s.shard(w.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if w.Cell != nil {
		if err := sh.entries.find(&w.Key).meets(w.Cell, s); err != nil {
			return err
		}
	}
	return s.store([]store.Write{*w}, []*entry{sh.entries.find(&w.Key)})
}

// WriteAll stores all of w or, when there is no room for a key of it, nothing.
func (s *Store) WriteAll(_ context.Context, w []store.Write) error {
	var held shardSet
	for i := range w {
		held.add(w[i].Key)
	}
	s.lock(held)
	defer s.unlock(held)
	entries := make([]*entry, len(w))
	for i := range w {
		entries[i] = s.entry(w[i].Key)
	}
	return s.store(w, entries)
}

// Update reads, lets decide judge, and writes, while it holds the key's shard. When
// there is no room for a new key, nothing is stored.
func (s *Store) Update(_ context.Context, q *store.Query, decide func(*store.State, *store.Write)) error {
	sh := s.shard(q.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	e, state, w := sh.entries.find(&q.Key), &sh.one.state, &sh.one.write
	state.Logs, state.Counts = state.Logs[:0], state.Counts[:0]
	e.read(q, state, s)
	if e == nil && len(state.Logs) == 1 {
		state.Logs[0].Events = sh.one.event[:0]
	}
	*w = store.Write{}
	decide(state, w)
	w.Key = q.Key
	if !changes(w) || e == nil && !stores(w) {
		return nil
	}
	if e == nil {
		var err error
		if e, err = s.makeRoom(w, nil); err != nil {
			return err
		}
	}
	e.apply(w, s)
	if sh.dirty != nil {
		sh.touch(e)
	}
	return nil
}

// UpdateAll reads, lets decide judge, and writes, while it holds the keys' shards. When
// there is no room for a new key, nothing is stored.
func (s *Store) UpdateAll(_ context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	var held shardSet
	for i := range q {
		held.add(q[i].Key)
	}
	s.lock(held)
	defer s.unlock(held)
	scratch := &s.shards[held.first()].scratch
	states, writes := scratch.take(len(q))
	for i := range q {
		e := s.entry(q[i].Key)
		scratch.entries[i] = e
		e.read(&q[i], &states[i], s)
	}
	decide(states, writes)
	for i := range q {
		writes[i].Key = q[i].Key
	}
	return s.store(writes, scratch.entries[:len(q)])
}

// take returns n states and n writes with nothing in them, and makes room for n entries.
func (s *scratch) take(n int) ([]store.State, []store.Write) {
	for len(s.states) < n {
		s.states, s.writes, s.entries = append(s.states, store.State{}), append(s.writes, store.Write{}), append(s.entries, nil)
	}
	for i := range n {
		state := &s.states[i]
		state.Logs, state.Counts = state.Logs[:0], state.Counts[:0]
	}
	clear(s.writes[:n])
	return s.states[:n], s.writes[:n]
}

// Len returns how many keys are kept.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].entries.size()
		s.shards[i].mu.Unlock()
	}
	return n
}

// Run forgets keys whose last event, counter, cell and reset have expired, and saves
// what has changed if there is a disk, until ctx ends. It saves once more then, and
// returns an error if that fails. Without it keys are forgotten only when there is no
// room, and nothing is saved.
func (s *Store) Run(ctx context.Context) error {
	var sweeps sync.WaitGroup
	sweeps.Go(func() { s.sweeps(ctx) })
	err := s.saves(ctx)
	sweeps.Wait()
	return err
}

// Sweep forgets at once what Run forgets by and by, for a clock that is turned.
func (s *Store) Sweep() {
	for i := range s.shards {
		s.shards[i].sweep(s, false)
	}
	s.feed.sweep(s.instant())
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

// instant is the time that expiry after a duration goes by: the start, and what has passed since
// by the monotonic clock. So nothing expires because the clock is set.
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

func (s *Store) shard(k store.Key) *shard { return &s.shards[k.Prefix()%shardCount] }

// entry returns the entry of k, nil if there is none. Its shard is locked.
func (s *Store) entry(k store.Key) *entry { return s.shard(k).entries.find(&k) }

// shardSet is a set of shards, one bit each.
type shardSet uint64

func (h *shardSet) add(k store.Key) { *h |= 1 << (k.Prefix() % shardCount) }

// first returns the index of the first shard, and of the first of all for none.
func (h shardSet) first() int { return bits.TrailingZeros64(uint64(h)) % shardCount }

// several reports whether h has more than one: what happens within one shard is whole
// to whoever looks at the shard.
func (h shardSet) several() bool { return h&(h-1) != 0 }

// lock locks the shards in the order of their indexes, as everybody does who locks
// more than one.
func (s *Store) lock(held shardSet) {
	if held.several() {
		s.several.RLock()
	}
	for ; held != 0; held &= held - 1 {
		s.shards[held.first()].mu.Lock()
	}
}

func (s *Store) unlock(held shardSet) {
	if held.several() {
		s.several.RUnlock()
	}
	for ; held != 0; held &= held - 1 {
		s.shards[held.first()].mu.Unlock()
	}
}

// store stores all of w or, when there is no room for a key of it, nothing. entries are
// those of its keys, nil where there is none. The shards are locked.
func (s *Store) store(w []store.Write, entries []*entry) error {
	for i := range w {
		if entries[i] != nil || !stores(&w[i]) {
			continue
		}
		if entries[i] = s.entry(w[i].Key); entries[i] != nil { // an earlier one of w made it
			continue
		}
		e, err := s.makeRoom(&w[i], w)
		if err != nil {
			s.dropEmpty(w[:i])
			return err
		}
		entries[i] = e
	}
	for i := range w {
		if e := entries[i]; e != nil && changes(&w[i]) {
			e.apply(&w[i], s)
			if sh := s.shard(w[i].Key); sh.dirty != nil {
				sh.touch(e)
			}
		}
	}
	return nil
}

// makeRoom makes an empty entry for w, without taking the place of another key of beside.
func (s *Store) makeRoom(w *store.Write, beside []store.Write) (*entry, error) {
	sh := s.shard(w.Key)
	if sh.entries.size() >= sh.maxKeys && !sh.evict(s, beside) {
		return nil, fmt.Errorf("%w (%w): %d keys are in memory, and none of them has expired",
			store.ErrOverloaded, store.ErrNotStored, shardCount*sh.maxKeys)
	}
	return sh.newEntry(w), nil
}

// dropEmpty removes the entries that were made for w.
func (s *Store) dropEmpty(w []store.Write) {
	for i := range w {
		if e := s.entry(w[i].Key); e != nil && e.isEmpty() {
			s.shard(w[i].Key).drop(e)
		}
	}
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
			sh.drop(e)
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
			sh.drop(e)
			return true
		}
	}
	return false
}
