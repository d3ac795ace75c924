package limiter

import (
	"context"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// blocks are the keys that nothing is admitted for, for a while, because a take of
// theirs was denied. They are all in memory: a blocked caller costs the store nothing,
// and is blocked while the store does not answer. Other instances learn of them, and
// this one of theirs, through the feed.
type blocks struct {
	opts   *Options
	shards [blockShards]blockShard
	resets recent[store.Instant] // of keys, so that a block that arrives late does not outlive them
}

type blockShard struct {
	mu    sync.RWMutex
	byKey map[store.Key]block
	max   int
}

// block is the latest block of a key. The zero block has ended, and is the first of
// none.
type block struct {
	made    store.Instant // when the decision behind it began
	until   store.Instant // its end
	strikes int           // blocks in a row, this one included
	ends    store.Instant // when nothing depends on it any more
	mine    bool          // this process made it, or one that it is merged with
}

const (
	// maxBlocks bounds the blocks in memory: some 150 MiB. Past it, those that end the
	// soonest are forgotten.
	maxBlocks = 1 << 20
	// blockShards is a power of two: many enough that looking through one for what ends
	// soonest takes well below a millisecond.
	blockShards = 256
	// sweepBlocksEvery is how often one shard is freed of blocks that nothing depends on,
	// so that each is visited every minute or so.
	sweepBlocksEvery = 250 * time.Millisecond
)

func newBlocks(most int, opts *Options) *blocks {
	b := &blocks{opts: opts}
	for i := range b.shards {
		b.shards[i].byKey, b.shards[i].max = make(map[store.Key]block), max(1, most/blockShards)
	}
	return b
}

func (b *blocks) shard(key store.Key) *blockShard { return &b.shards[key.Prefix()%blockShards] }

// of returns the latest block of t, under whichever of its keys. One that was made by a clock
// that was set back since begins now.
func (b *blocks) of(t *target, now store.Instant) block {
	latest := b.at(t.key, now)
	for _, key := range t.old {
		latest = latest.merge(b.at(key, now))
	}
	return latest
}

func (b *blocks) at(key store.Key, now store.Instant) block {
	of := b.get(key)
	if !b.opts.isSetBack(of.made, now) {
		return of
	}
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.redate(key, now)
}

// redate has the block of key begin now, if it was made later, and returns it.
func (s *blockShard) redate(key store.Key, now store.Instant) block {
	of, there := s.byKey[key]
	if !there || of.made <= now {
		return of
	}
	early := of.made - now
	of.made, of.until = now, of.until-early
	of.ends = max(of.until, of.ends-early)
	s.byKey[key] = of
	return of
}

func (b *blocks) get(key store.Key) block {
	s := b.shard(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byKey[key]
}

// punish returns the block of t for a denial at now of what was asked at asked: the one
// there is, or else one that is made. It returns the zero block when t was reset since.
func (b *blocks) punish(t *target, asked, now store.Instant) (made block, fresh bool) {
	last := b.of(t, now) // of other keys too, and before the lock of this one's shard
	s := b.shard(t.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	last = last.merge(s.byKey[t.key])
	if last.until > now {
		return last, false
	}
	if reset, ok := b.resets.get(t.key); ok && asked <= reset && !b.opts.isSetBack(reset, asked) {
		return block{}, false
	}
	made = t.plan.blockAfter(&last, asked, now)
	s.put(t.key, made, now)
	return made, true
}

// learn notes a block that another instance made, or that this one made before it was
// started anew.
func (b *blocks) learn(key store.Key, news block, now store.Instant) {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if reset, ok := b.resets.get(key); ok && news.made <= reset || news.ends < now {
		return
	}
	s.put(key, news.merge(s.byKey[key]), now)
}

// lift ends the block of key and forgets all before it, unless it was made after the
// reset. It returns what it has forgotten.
func (b *blocks) lift(key store.Key, reset store.Instant) block {
	s := b.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, ok := b.resets.get(key); !ok || before < reset {
		b.resets.put(key, reset)
	}
	lifted := s.byKey[key]
	if b.opts.isSetBack(lifted.made, reset) {
		lifted = s.redate(key, reset)
	}
	if lifted.made > reset {
		return block{}
	}
	delete(s.byKey, key)
	return lifted
}

// put keeps made. A shard that is full forgets what ended longest ago or ends the
// soonest, which may be made itself.
func (s *blockShard) put(key store.Key, made block, now store.Instant) {
	s.byKey[key] = made
	if len(s.byKey) <= s.max {
		return
	}
	if s.sweep(now); len(s.byKey) <= s.max {
		return
	}
	soonest, until := key, made.until
	for k, b := range s.byKey {
		if b.until < until {
			soonest, until = k, b.until
		}
	}
	delete(s.byKey, soonest)
}

func (s *blockShard) sweep(now store.Instant) {
	for key, b := range s.byKey {
		if b.ends < now {
			delete(s.byKey, key)
		}
	}
}

// run forgets the blocks that nothing depends on, until ctx ends.
func (b *blocks) run(ctx context.Context, o *Options) {
	tick := time.NewTicker(sweepBlocksEvery)
	defer tick.Stop()
	for next := 0; ; next++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s := &b.shards[next%blockShards]
			s.mu.Lock()
			s.sweep(o.now())
			s.mu.Unlock()
		}
	}
}

// merge returns what two instances know of one key's blocks. Of a later block, whoever
// made it knew the earlier one. Blocks that overlap were made by instances that did not
// know of each other: they are one, for as long as either lasts.
func (b block) merge(other block) block {
	earlier, later := b, other
	if later.made < earlier.made {
		earlier, later = later, earlier
	}
	if later.made >= earlier.until {
		return later
	}
	later.until = max(later.until, earlier.until)
	later.strikes = max(later.strikes, earlier.strikes)
	later.ends = max(later.ends, earlier.ends)
	later.mine = later.mine || earlier.mine
	return later
}

// blockAfter returns the block that follows last: the next in a row if last ended no
// longer than the longest block ago, else a first one.
func (p *plan) blockAfter(last *block, asked, now store.Instant) block {
	strikes := 1
	if last.strikes > 0 && now <= last.until.Add(p.BlockMax) {
		strikes = last.strikes + 1
	}
	until := now.Add(p.BlockLength(strikes))
	return block{made: asked, until: until, strikes: strikes, ends: until.Add(p.BlockMax), mine: true}
}

// blocks reports whether the policy's denials block.
func (p *plan) blocks() bool { return p.BlockFor > 0 && p.Mode == policy.ModeEnforce }

// decideBlocked decides c by a block, if there is one. A record is never blocked, nor is
// looking at what is counted, which costs nothing.
func (e *Engine) decideBlocked(c *charge) (decided bool) {
	if !c.plan.blocks() || c.op == count.OpRecord || c.cost == 0 {
		return false
	}
	now := e.now()
	rest := e.blocks.of(&c.target, now).until.Sub(now)
	if rest <= 0 {
		return false
	}
	c.decision = c.plan.denyFor(rest)
	return true
}

// denyFor returns the decision to deny for as long as a block lasts, without having
// asked anyone what is counted: as if every limit were reached.
func (p *plan) denyFor(rest time.Duration) count.Decision {
	var d count.Decision
	for i, limits := 0, p.Begin(&d); i < len(limits); i++ {
		r, v := &p.Rules[i], &limits[i].Verdict
		*v = count.Verdict{Used: r.Capacity, ResetAfter: rest, RetryAfter: rest}
		if r.Limit.Limit == 0 {
			v.RetryAfter = count.Never
		}
	}
	d.Blocked = true
	d.Conclude()
	return d
}

// asking returns the instant that a block is dated by which the decision that is about
// to be made may end; 0 for a policy that does not block.
func (e *Engine) asking(p *plan) store.Instant {
	if !p.blocks() {
		return 0
	}
	return e.now()
}

// punish blocks the key of c if d, of a take that was asked at asked, denies it.
func (e *Engine) punish(c *charge, d *count.Decision, asked store.Instant) {
	if !c.plan.blocks() || c.op != count.OpTake || d.Allowed {
		return
	}
	now, err := e.instant()
	if err != nil { // by such a clock it would end at the wrong time, everywhere
		return
	}
	made, fresh := e.blocks.punish(&c.target, asked, now)
	if rest := made.until.Sub(now); rest > 0 {
		d.Outlast(rest)
	}
	if fresh {
		e.spread(&store.Change{
			ID: e.ids.Next(asked), Kind: store.ChangeBlock, Key: c.key, Until: made.until, Strikes: made.strikes, TTL: livesUntil(made.ends, now),
		})
	}
}

// askInVain asks for charges of a call that a block on another one denies: nothing of
// them is counted, except where denied attempts are.
func (e *Engine) askInVain(ctx context.Context, charges []charge) {
	for i := range charges {
		c := &charges[i]
		if c.op = c.opIf(true); c.op == count.OpCheck {
			c.hold, c.id = 0, store.EventID{}
		}
	}
	for _, op := range []count.Op{count.OpCheck, count.OpTake} {
		var alike []charge
		var at []int
		for i := range charges {
			if charges[i].op == op {
				alike, at = append(alike, charges[i]), append(at, i)
			}
		}
		if len(alike) > 0 {
			e.askAll(ctx, alike)
		}
		for j, i := range at {
			charges[i] = alike[j]
		}
	}
}
