package limiter

import (
	"sync/atomic"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// changes is how often keys changed, each counted together with some others.
type changes [changeMarks]atomic.Uint64

// changeMarks is enough that few of the keys that are full share one with a key that is not.
const changeMarks = 1 << 12

func (c *changes) of(key *store.Key) uint64 { return c[key.Prefix()%changeMarks].Load() }

func (c *changes) note(key *store.Key) { c[key.Prefix()%changeMarks].Add(1) }
