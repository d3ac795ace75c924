// Package embedded is the store in this process's memory. It is the default store, and decides while a shared store
// does not answer.
//
// The store is sharded by key, drops expired counts, and is bounded. It keeps events, counters, cells, resets and changes. It
// does not know policies or algorithms.
package embedded

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Store keeps counts in memory. It implements store.Exclusive. Make one with New or Open.
type Store struct {
	now     func() time.Time
	started time.Time
	shards  [shardCount]shard
	feed    feed
	saver   saver
	claims  claims
	several sync.RWMutex // read-locked by each write of several shards
}

var (
	_ store.Exclusive = (*Store)(nil)
	_ store.Feed      = (*Store)(nil)
)

// Options of a Store. The zero value suits a service that runs alone.
type Options struct {
	MaxKeys int              // the most keys that are kept; zero: DefaultMaxKeys
	Now     func() time.Time // the engine's clock; nil: clock.SystemClock

	// For Open only.
	Disk      Disk          // keeps the counts across restarts
	SyncEvery time.Duration // the time between saves; zero: DefaultSyncEvery
	Logger    *slog.Logger  // gets a line when saves begin to fail, and when they succeed again; nil: no log
}

// DefaultMaxKeys is the default of Options.MaxKeys. That many keys take a quarter of a GiB with one counter each, and two
// thirds of a GiB with ten events each.
const DefaultMaxKeys = 1 << 20

// shardCount is so large that two cores rarely need the same shard. A shardSet has as many bits.
const shardCount = 64

// shard is one part of the keys.
type shard struct {
	mu      sync.Mutex
	entries index
	maxKeys int
	one     one
	scratch scratch
	dirty   map[store.Key]struct{} // keys whose present state is not on the disk; nil: there is no disk
}

// one is the memory that each Update of a key in the shard reuses.
type one struct {
	state store.State
	write store.Write
	event [1]store.Event // room for decide to append to the log of a new key
}

// scratch is the memory that each UpdateAll reuses whose first shard is this one.
type scratch struct {
	states  []store.State
	writes  []store.Write
	entries []*entry // of the keys, in their order; nil for a new key
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
	s.claims.most = max(1, int64(maxKeys/claimShare))
	for i := range s.shards {
		s.shards[i].entries.init()
		s.shards[i].maxKeys = max(1, maxKeys/shardCount)
	}
	return s
}

// Update reads, calls decide, and writes, while it holds the lock of the key's shard. If there is no room for a new
// key, it stores nothing.
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
	return nil
}

func (s *Store) shard(k store.Key) *shard { return &s.shards[k.Prefix()%shardCount] }

// Read returns the state that q asks for.
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

// Write stores w, or nothing if it returns an error. The error wraps store.ErrConflict if the cell has another version
// than expected, and store.ErrOverloaded if there is no room for a new key.
func (s *Store) Write(ctx context.Context, w *store.Write) error {
	var conflict error
	err := s.Update(ctx, &store.Query{Key: w.Key, Cell: w.Cell != nil}, func(have *store.State, to *store.Write) {
		if version := have.Cell.Version; w.Cell != nil && version != w.Cell.If {
			conflict = fmt.Errorf("%w: it has version %v, not %v", store.ErrConflict, version, w.Cell.If)
			return
		}
		*to = *w
	})
	return cmp.Or(conflict, err)
}

// WriteEach stores each of w as Write does.
func (s *Store) WriteEach(ctx context.Context, w []store.Write, wrote func(i int, err error)) {
	store.OneByOne(ctx, s, w, wrote)
}

// WriteThenRead stores w as Write does, and then reads.
func (s *Store) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (state store.State, wrote bool, err error) {
	return store.InTwoSteps(ctx, s, w, q)
}

// UpdateAll reads, calls decide, and writes, while it holds the locks of the keys' shards. If there is no room for a new key, it
// stores nothing.
func (s *Store) UpdateAll(_ context.Context, q []store.Query, decide func([]store.State, []store.Write)) error {
	var set shardSet
	for i := range q {
		set.add(q[i].Key)
	}
	s.lock(set)
	defer s.unlock(set)
	scratch := &s.shards[set.first()].scratch
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

// take returns n empty states and n empty writes, and makes room for n entries.
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

// store stores all of w, or nothing if there is no room for one of its keys. entries has the keys' entries, nil for a new key.
// The shards are locked.
func (s *Store) store(w []store.Write, entries []*entry) error {
	for i := range w {
		if entries[i] != nil || !stores(&w[i]) {
			continue
		}
		e, err := s.makeRoom(&w[i], w)
		if err != nil {
			s.dropEmpty(entries[:i])
			return err
		}
		entries[i] = e
	}
	for i := range w {
		if e := entries[i]; e != nil && changes(&w[i]) {
			e.apply(&w[i], s)
		}
	}
	return nil
}

// entry returns the entry of k, nil if there is none. Its shard is locked.
func (s *Store) entry(k store.Key) *entry { return s.shard(k).entries.find(&k) }

// makeRoom makes an empty entry for w. If it has to evict a key, it spares those of beside.
func (s *Store) makeRoom(w *store.Write, beside []store.Write) (*entry, error) {
	sh := s.shard(w.Key)
	if w.Cell != nil {
		if err := s.roomForClaim(sh, claimantOf(w.Cell), beside); err != nil {
			return nil, err
		}
	}
	if sh.entries.size() >= sh.maxKeys && !sh.evict(s, beside) {
		return nil, fmt.Errorf("%w (%w): %d keys are in memory, and none of them has expired",
			store.ErrOverloaded, store.ErrNotStored, shardCount*sh.maxKeys)
	}
	return sh.newEntry(w), nil
}

// roomForClaim returns an error if there is no room for one more claim of by, even after it has dropped an expired key of the
// shard.
func (s *Store) roomForClaim(sh *shard, by claimant, beside []store.Write) error {
	err := s.claims.full(by)
	if err != nil && sh.entries.size() > 0 && sh.evict(s, beside) {
		err = s.claims.full(by)
	}
	return err
}

// dropEmpty drops the entries that are empty. Their shards are locked.
func (s *Store) dropEmpty(entries []*entry) {
	for _, e := range entries {
		if e != nil && e.isEmpty() {
			s.shard(e.key).drop(s, e)
		}
	}
}

// Len returns the number of keys that are kept.
func (s *Store) Len() int {
	n := 0
	for i := range s.shards {
		s.shards[i].mu.Lock()
		n += s.shards[i].entries.size()
		s.shards[i].mu.Unlock()
	}
	return n
}

// shardSet is a set of shards, one bit each.
type shardSet uint64

func (h *shardSet) add(k store.Key) { *h |= 1 << (k.Prefix() % shardCount) }

// first returns the index of the first shard, 0 if h is empty.
func (h shardSet) first() int { return bits.TrailingZeros64(uint64(h)) % shardCount }

// several reports whether h has more than one shard. Changes within one shard need no further lock, as its readers see all of
// them or none.
func (h shardSet) several() bool { return h&(h-1) != 0 }

// lock locks the shards in the order of their indexes. Every function that locks more than one shard must do so.
func (s *Store) lock(set shardSet) {
	if set.several() {
		s.several.RLock()
	}
	for ; set != 0; set &= set - 1 {
		s.shards[set.first()].mu.Lock()
	}
}

func (s *Store) unlock(set shardSet) {
	if set.several() {
		s.several.RUnlock()
	}
	for ; set != 0; set &= set - 1 {
		s.shards[set.first()].mu.Unlock()
	}
}

// index finds entries by their keys. Keys are hashes, so their first eight bytes distinguish almost all of them, and a look-up
// by these takes a third of the time. The maps have places instead of pointers, so that the garbage collector does not scan
// the maps, and scans slabs instead of single entries. The zero index needs init before the first add.
type index struct {
	byPrefix map[uint64]place
	others   map[store.Key]place // keys whose prefix another key in byPrefix has
	slabs    []slab
	used     []uint64 // one bit for each place; 1: it has an entry
	roomy    []uint32 // indices of the words in used that have a free place
	hand     place    // the place at which next continues
}

// place is the position of an entry: wordSize times the index of a word in used, plus the index of the bit.
type place uint32

// slab has the memory of the entries for slabWords words of used. Parts that are not needed are nil.
type slab struct {
	entries *[slabSize]entry
	events  *[slabSize]store.Event // room for the first event of each log
}

const (
	wordSize  = 64
	slabWords = 4
	// slabSize is so large that the allocator returns whole pages for entries, which are then aligned to lines of the
	// processor's cache.
	slabSize = slabWords * wordSize
)

func (x *index) init() { x.byPrefix = make(map[uint64]place) }

// find returns the entry of k, nil if there is none. The entry keeps its address until it is removed.
func (x *index) find(k *store.Key) *entry {
	if p, ok := x.byPrefix[k.Prefix()]; ok {
		if e := x.at(p); e.key == *k {
			return e
		}
	}
	if p, ok := x.others[*k]; ok {
		return x.at(p)
	}
	return nil
}

func (x *index) at(p place) *entry { return &x.slabs[p/slabSize].entries[p%slabSize] }

// add makes an entry of k, which must have none. If log is true, the entry has room for its first event.
func (x *index) add(k store.Key, log bool) *entry {
	p := x.take()
	s := &x.slabs[p/slabSize]
	if s.entries == nil {
		s.entries = new([slabSize]entry)
	}
	e := &s.entries[p%slabSize]
	e.key = k
	if log {
		if s.events == nil {
			s.events = new([slabSize]store.Event)
		}
		e.log.events = s.events[p%slabSize : p%slabSize : p%slabSize+1]
	}
	if _, taken := x.byPrefix[k.Prefix()]; !taken {
		x.byPrefix[k.Prefix()] = p
		return e
	}
	if x.others == nil {
		x.others = make(map[store.Key]place)
	}
	x.others[k] = p
	return e
}

// take returns a free place and marks it as used.
func (x *index) take() place {
	if len(x.roomy) == 0 {
		for word := range uint32(slabWords) {
			x.roomy = append(x.roomy, uint32(len(x.used))+slabWords-1-word) // in descending order, as take uses the last one first
		}
		x.used = append(x.used, make([]uint64, slabWords)...)
		x.slabs = append(x.slabs, slab{})
	}
	last := len(x.roomy) - 1
	word := x.roomy[last]
	bit := bits.TrailingZeros64(^x.used[word])
	if x.used[word] |= 1 << bit; ^x.used[word] == 0 {
		x.roomy = x.roomy[:last]
	}
	return place(word)*wordSize + place(bit)
}

// remove removes e. A slab's memory is released with its last entry.
func (x *index) remove(e *entry) {
	p, ok := x.byPrefix[e.key.Prefix()]
	if ok && x.at(p) == e {
		delete(x.byPrefix, e.key.Prefix())
	} else {
		p = x.others[e.key]
		delete(x.others, e.key)
	}
	*e = entry{}
	word := p / wordSize
	if ^x.used[word] == 0 {
		x.roomy = append(x.roomy, uint32(word))
	}
	x.used[word] &^= 1 << (p % wordSize)
	n := p / slabSize
	if beside := x.used[n*slabWords : (n+1)*slabWords]; !slices.ContainsFunc(beside, func(used uint64) bool { return used != 0 }) {
		x.slabs[n] = slab{}
	}
}

// size returns the number of entries.
func (x *index) size() int { return len(x.byPrefix) + len(x.others) }

// all returns all entries, in no order. Entries may be removed during the iteration.
func (x *index) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for word, used := range x.used {
			for ; used != 0; used &= used - 1 {
				if !yield(x.at(place(word*wordSize + bits.TrailingZeros64(used)))) {
					return
				}
			}
		}
	}
}

// next returns the entries one after the other, and then begins again. There must be at least one.
func (x *index) next() *entry {
	for {
		p := x.hand
		if x.hand++; int(x.hand) >= wordSize*len(x.used) {
			x.hand = 0
		}
		if x.used[p/wordSize]>>(p%wordSize)&1 == 1 {
			return x.at(p)
		}
	}
}
