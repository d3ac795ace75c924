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

// Blocks are the keys that nothing is admitted for, for a while, because a take of
// theirs was denied. They are all in memory: a blocked caller costs the store nothing,
// and is blocked while the store does not answer. Other instances learn of them, and
// this one of theirs, through the feed.
type Blocks struct {
	timing *clock.Timing
	shards [BlockShards]blockShard
	resets bounded.Recent[store.Instant] // Of keys, so that a block that arrives late does not outlive them
}

type blockShard struct {
	mu    sync.RWMutex
	byKey map[store.Key]Block
	max   int
}

// Block is the latest block of a key. The zero Block has ended, and is the first of
// none.
type Block struct {
	Made    store.Instant // when the decision behind it began
	Until   store.Instant // its end
	Strikes int           // blocks in a row, this one included
	Ends    store.Instant // when nothing depends on it any more
	Mine    bool          // this process made it, or one that it is merged with
}

const (
	// MaxBlocks bounds the blocks in memory: some 150 MiB. Past it, those that end the
	// soonest are forgotten.
	MaxBlocks = 1 << 20
	// BlockShards is a power of two: many enough that looking through one for what ends
	// soonest takes well below a millisecond.
	BlockShards = 256
	// sweepBlocksEvery is how often one shard is freed of blocks that nothing depends on,
	// so that each is visited every minute or so.
	sweepBlocksEvery = 250 * time.Millisecond
)

// NewBlocks returns none, of most keys at most.
func NewBlocks(most int, timing *clock.Timing) *Blocks {
	b := &Blocks{timing: timing}
	for i := range b.shards {
		b.shards[i].byKey, b.shards[i].max = make(map[store.Key]Block), max(1, most/BlockShards)
	}
	return b
}

func (b *Blocks) shard(key store.Key) *blockShard { return &b.shards[key.Prefix()%BlockShards] }

// Of returns the latest block of key, or of one of those that it had before. One that was made by a clock
// that was set back since begins now.
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

// redate has the block of key begin now, if it was made later, and returns it.
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

// Get returns the latest block of key, as it was made.
func (b *Blocks) Get(key store.Key) Block {
	s := b.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// Punish returns the block of key, which had old ones before, for a denial under p at now of what
// was asked at asked: the one there is, or else one that is made. It returns the zero block when
// the key was reset since.
func (b *Blocks) Punish(p *policy.Policy, key store.Key, old []store.Key, asked, now store.Instant) (made Block, fresh bool) {
	last := b.Of(key, old, now) // Of other keys too, and before the lock Of this one's shard
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

// Learn notes a block that another instance made, or that this one made before it was
// started anew.
func (b *Blocks) Learn(key store.Key, news Block, now store.Instant) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset, ok := b.resets.Get(key); ok && news.Made <= reset || news.Ends < now {
		return
	}
	s.put(key, news.Merge(s.byKey[key]), now)
}

// Lift ends the block of key and forgets all before it, unless it was made after the
// reset. It returns what it has forgotten.
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

// put keeps made. A shard that is full forgets what ended longest ago or ends the
// soonest, which may be made itself.
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

// Len returns how many keys a block is known of.
func (b *Blocks) Len() (n int) {
	for i := range b.shards {
		s := &b.shards[i]
		s.mu.RLock()
		n += len(s.byKey)
		s.mu.RUnlock()
	}
	return n
}

// Run forgets the blocks that nothing depends on, until ctx ends.
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

// Merge returns what two instances know of one key's blocks. Of a later block, whoever
// made it knew the earlier one. Blocks that overlap were made by instances that did not
// know of each other: they are one, for as long as either lasts.
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

// blockAfter returns the block under p that follows last: the next in a row if last ended no
// longer than the longest block ago, else a first one.
func blockAfter(p *policy.Policy, last *Block, asked, now store.Instant) Block {
	strikes := 1
	if last.Strikes > 0 && now <= last.Until.Add(p.BlockMax) {
		strikes = last.Strikes + 1
	}
	until := now.Add(p.BlockLength(strikes))
	return Block{Made: asked, Until: until, Strikes: strikes, Ends: until.Add(p.BlockMax), Mine: true}
}
