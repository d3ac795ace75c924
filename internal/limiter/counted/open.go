package counted

import (
	"context"
	"fmt"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Open has nothing remembered of key for a while. It returns when no batch that went by memory is
// under way.
func (s *Decider) Open(ctx context.Context, key store.Key, theirs time.Duration) error {
	r := &demand.Request{Alone: true}
	var err error
	led := false
	s.flights.join(ctx, key, r, s.opts.StoreTimeout, func(ctx context.Context, _ []*demand.Request) {
		led = true
		if err = s.counted.behind.writeKey(ctx, key); err == nil {
			err = s.counted.owned.open(key, theirs)
		}
	})
	if !led && r.Err != nil {
		return r.Err
	}
	return err
}

// maxOpen is how many keys of a shard are open; beyond, none is opened.
const maxOpen = 1 << 12

// open forgets key, and has nothing of it remembered for a while, in which somebody with that store
// timeout counts for it.
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

// openFor returns for how long a key that is opened is not remembered: who opened it has one store
// timeout of its own for all that it does, which it measures from an earlier moment.
func (o *owned) openFor(theirs time.Duration) time.Duration {
	return 2 * max(theirs, o.opts.StoreTimeout)
}
