package signals

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Blocks are the blocks of keys, which admit nothing for a while after one of their takes was denied. All blocks are in
// memory: a blocked caller costs the store nothing, and stays blocked while the store does not answer. Instances exchange
// them through the feed.
type Blocks struct {
	timing *clock.Timing
	shards [BlockShards]blockShard
	resets bounded.Recent[store.Instant] // latest resets of keys, which end blocks that arrive after them
}

type blockShard struct {
	mu    sync.RWMutex
	byKey map[store.Key]Block
	max   int
}

// Block is the latest block of a key. The zero Block has ended, and does not lengthen the next one.
type Block struct {
	Made    store.Instant // when the decision behind it began
	Until   store.Instant // its end
	Strikes int           // number of blocks in a row, including this one
	Ends    store.Instant // when no decision depends on it any more
	Mine    bool          // this process made it, or a block that was merged into it
}

const (
	// MaxBlocks bounds the blocks in memory: some 150 MiB. Past it, the blocks that end first are dropped.
	MaxBlocks = 1 << 20
	// BlockShards is a power of two, so large that a search through one shard takes well below a millisecond.
	BlockShards = 256
	// sweepBlocksEvery is the interval in which one shard after the other is swept: each about once a minute.
	sweepBlocksEvery = 250 * time.Millisecond
)

// NewBlocks returns an empty Blocks, for at most most keys.
func NewBlocks(most int, timing *clock.Timing) *Blocks {
	b := &Blocks{timing: timing}
	for i := range b.shards {
		b.shards[i].byKey, b.shards[i].max = make(map[store.Key]Block), max(1, most/BlockShards)
	}
	return b
}

func (b *Blocks) shard(key store.Key) *blockShard { return &b.shards[key.Prefix()%BlockShards] }

// Of returns the latest block of key and its old keys. If the block was dated by a clock that has since been set back, it
// begins now.
func (b *Blocks) Of(key store.Key, old []store.Key, now store.Instant) Block {
	latest := b.at(key, now)
	for _, key := range old {
		latest = latest.Merge(b.at(key, now))
	}
	return latest
}

func (b *Blocks) at(key store.Key, now store.Instant) Block {
	of := b.Get(key)
	if !b.timing.IsSetBack(of.Made, now) {
		return of
	}
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redate(key, now)
}

// redate makes the block of key begin now if it begins later, and returns it.
func (s *blockShard) redate(key store.Key, now store.Instant) Block {
	of, there := s.byKey[key]
	if !there || of.Made <= now {
		return of
	}
	early := of.Made - now
	of.Made, of.Until = now, of.Until-early
	of.Ends = max(of.Until, of.Ends-early)
	s.byKey[key] = of
	return of
}

// Get returns the latest block of key, unchanged.
func (b *Blocks) Get(key store.Key) Block {
	s := b.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// Punish returns the block of key after a denial under p at now: the current block, or else a new one. The denied call began
// at asked, and old has the key's old keys. Punish returns the zero block if the key has been reset since asked.
func (b *Blocks) Punish(p *policy.Policy, key store.Key, old []store.Key, asked, now store.Instant) (made Block, fresh bool) {
	last := b.Of(key, old, now) // before this shard is locked, as old keys may be in it, too
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	last = last.Merge(s.byKey[key])
	if last.Until > now {
		return last, false
	}
	if reset, ok := b.resets.Get(key); ok && asked <= reset && !b.timing.IsSetBack(reset, asked) {
		return Block{}, false
	}
	made = blockAfter(p, &last, asked, now)
	s.put(key, made, now)
	return made, true
}

// Learn adds a block that another instance made, or this instance before it restarted.
func (b *Blocks) Learn(key store.Key, news Block, now store.Instant) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset, ok := b.resets.Get(key); ok && news.Made <= reset || news.Ends < now {
		return
	}
	s.put(key, news.Merge(s.byKey[key]), now)
}

// Lift removes the block of key, and with it the number of blocks in a row, unless the block was made after the reset. It
// returns the removed block.
func (b *Blocks) Lift(key store.Key, reset store.Instant) Block {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := b.resets.Get(key); !ok || before < reset {
		b.resets.Put(key, reset)
	}
	lifted := s.byKey[key]
	if b.timing.IsSetBack(lifted.Made, reset) {
		lifted = s.redate(key, reset)
	}
	if lifted.Made > reset {
		return Block{}
	}
	delete(s.byKey, key)
	return lifted
}

// put stores the block made. A full shard drops the block with the earliest end, which may be this one.
func (s *blockShard) put(key store.Key, made Block, now store.Instant) {
	s.byKey[key] = made
	if len(s.byKey) <= s.max {
		return
	}
	if s.sweep(now); len(s.byKey) <= s.max {
		return
	}
	soonest, until := key, made.Until
	for k, b := range s.byKey {
		if b.Until < until {
			soonest, until = k, b.Until
		}
	}
	delete(s.byKey, soonest)
}

func (s *blockShard) sweep(now store.Instant) {
	for key, b := range s.byKey {
		if b.Ends < now {
			delete(s.byKey, key)
		}
	}
}

// Len returns the number of keys with a block.
func (b *Blocks) Len() (n int) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.RLock()
		n += len(s.byKey)
		s.mu.RUnlock()
	}
	return n
}

// Run removes blocks that no decision depends on any more, until ctx ends.
func (b *Blocks) Run(ctx context.Context) {
	tick := time.NewTicker(sweepBlocksEvery)
	defer tick.Stop()
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s := &b.shards[next%BlockShards]
			s.mu.Lock()
			s.sweep(b.timing.Instant())
			s.mu.Unlock()
		}
	}
}

// Merge returns the block of a key that two instances have blocked. If one block begins after the other's end, its instance
// knew of the earlier block, and Merge returns the later one. Blocks that overlap were made by instances that did not know
// of each other's block. They become one, which lasts until both have ended.
func (b Block) Merge(other Block) Block {
	earlier, later := b, other
	if later.Made < earlier.Made {
		earlier, later = later, earlier
	}
	if later.Made >= earlier.Until {
		return later
	}
	later.Until = max(later.Until, earlier.Until)
	later.Strikes = max(later.Strikes, earlier.Strikes)
	later.Ends = max(later.Ends, earlier.Ends)
	later.Mine = later.Mine || earlier.Mine
	return later
}

// blockAfter returns the block under p that follows last: the next in a row if last ended within the length of the
// longest block, else the first of a row.
func blockAfter(p *policy.Policy, last *Block, asked, now store.Instant) Block {
	strikes := 1
	if last.Strikes > 0 && now <= last.Until.Add(p.BlockMax) {
		strikes = last.Strikes + 1
	}
	until := now.Add(p.BlockLength(strikes))
	return Block{Made: asked, Until: until, Strikes: strikes, Ends: until.Add(p.BlockMax), Mine: true}
}
