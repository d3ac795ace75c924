package limiter

import (
	"github.com/ratelimitd/ratelimitd/internal/limiter/signals"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Bounds of what engines remember, for tests.
const (
	BlockShards = signals.BlockShards
	PollEvery   = signals.PollEvery
)

// BoundBlocks makes e remember at most this many blocks, and none so far.
func (e *Engine) BoundBlocks(most int) {
	e.judge.Blocks.Blocks = signals.NewBlocks(most, e.settings.Timing)
}

// BlocksKnown returns how many keys e knows a block of.
func (e *Engine) BlocksKnown() int { return e.judge.Blocks.Len() }

// MergeBlocks returns the end and the strikes of two blocks, each given as when it was
// made, its end and its strikes, by an instance that learns of one and then the other.
func MergeBlocks(a, b [3]int) [2]int {
	of := func(v [3]int) signals.Block {
		return signals.Block{Made: store.Instant(v[0]), Until: store.Instant(v[1]), Strikes: v[2]}
	}
	merged := of(a).Merge(of(b))
	return [2]int{int(merged.Until), merged.Strikes}
}
