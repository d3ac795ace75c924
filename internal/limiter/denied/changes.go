package denied

import (
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Changes is how often keys changed, each counted together with some others.
type Changes [changeMarks]atomic.Uint64

// changeMarks is enough that few of the keys that are full share one with a key that is not.
const changeMarks = 1 << 12

// Of returns how often key, or one that is counted with it, has changed.
func (c *Changes) Of(key *store.Key) uint64 { return c[key.Prefix()%changeMarks].Load() }

// Note notes a change of key.
func (c *Changes) Note(key *store.Key) { c[key.Prefix()%changeMarks].Add(1) }
