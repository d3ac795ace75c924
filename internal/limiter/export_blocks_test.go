package limiter

import "github.com/ratelimitd/ratelimitd/internal/limiter/store"

// Bounds of what engines remember, for tests.
const (
	BlockShards = blockShards
	PollEvery   = pollEvery
)

// BoundBlocks makes e remember at most this many blocks, and none so far.
func (e *Engine) BoundBlocks(most int) { e.blocks = newBlocks(most, &e.opts) }

// BlocksKnown returns how many keys e knows a block of.
func (e *Engine) BlocksKnown() (n int) {
	for i := range e.blocks.shards {
		s := &e.blocks.shards[i]
		s.mu.RLock()
		n += len(s.byKey)
		s.mu.RUnlock()
	}
	return n
}

// MergeBlocks returns the end and the strikes of two blocks, each given as when it was
// made, its end and its strikes, by an instance that learns of one and then the other.
func MergeBlocks(a, b [3]int) [2]int {
	of := func(v [3]int) block {
		return block{made: store.Instant(v[0]), until: store.Instant(v[1]), strikes: v[2]}
	}
	merged := of(a).merge(of(b))
	return [2]int{int(merged.until), merged.strikes}
}
