package counted

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Open keeps key out of memory for a while. It returns once no batch that is decided by memory is in progress.
func (s *Decider) Open(ctx context.Context, key store.Key, theirs time.Duration) error {
	return s.alone(ctx, key, func(ctx context.Context) error {
		if err := s.counted.behind.writeKey(ctx, key); err != nil {
			return err
		}
		return s.counted.owned.open(key, theirs)
	})
}

// maxOpen bounds the open keys of a shard; past it, no key is opened.
const maxOpen = 1 << 12

// open drops key, and keeps it out of memory for a while, in which an instance with the store timeout theirs counts for
// it.
func (o *owned) open(key store.Key, theirs time.Duration) error {
	sh := o.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	delete(sh.young, key)
	delete(sh.Old, key)
	now := time.Now()
	if len(sh.open) >= maxOpen {
		for other, until := range sh.open {
			if now.After(until) {
				delete(sh.open, other)
			}
		}
	}
	if len(sh.open) >= maxOpen {
		return fmt.Errorf("%w: %d keys are open", store.ErrOverloaded, maxOpen)
	}
	if sh.open == nil {
		sh.open = make(map[store.Key]time.Time)
	}
	sh.open[key] = now.Add(o.openFor(theirs))
	return nil
}

// openFor returns how long an open key stays out of memory: the instance that opened it has one of its own store
// timeouts for all its steps, which it measures from an earlier moment.
func (o *owned) openFor(theirs time.Duration) time.Duration {
	return 2 * max(theirs, o.opts.StoreTimeout)
}
