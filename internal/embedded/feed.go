package embedded

import (
	"context"
	"fmt"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// feed is what was published and still lives.
type feed struct {
	mu      sync.Mutex
	changes map[store.EventID]published
	soonest store.Instant // nothing expires before
}

// published is a change and what the store knows of it, by its own clock.
type published struct {
	store.Change
	at      store.Instant
	expires store.Instant
}

// maxChanges bounds the changes that are kept: some 10 MiB. Resets and refunds live for
// seconds, blocks for as long as they last, holds for an hour: of these some make room for all others.
const maxChanges = 1 << 16

// Publish keeps c for its TTL. It returns an error that wraps limiter.ErrOverloaded
// when there is no room for it. News of holds are for the process that comes after this one,
// and are kept if there is a disk.
func (s *Store) Publish(_ context.Context, c *store.Change) error {
	if c.Kind == store.ChangeHold && s.saver.disk == nil {
		return nil
	}
	now := s.instant()
	return s.feed.add(published{Change: *c, at: now, expires: now.Add(c.TTL)}, now)
}

// Changes returns the changes that were dated or published since the instant of q, and have not
// expired.
func (s *Store) Changes(_ context.Context, q *store.ChangeQuery) ([]store.Change, error) {
	return s.feed.since(q.Since, s.instant()), nil
}

func (f *feed) add(p published, now store.Instant) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.changes) >= maxChanges {
		f.expire(now)
	}
	if len(f.changes) >= maxChanges && (p.yields() || !f.drop()) {
		return fmt.Errorf("%w (%w): %d changes are in memory, and none of them has expired",
			store.ErrOverloaded, store.ErrNotStored, maxChanges)
	}
	f.put(p)
	return nil
}

// yields reports whether p makes room for what administrators do, and for refunds: it is a block or a
// hold, which is still gone by until this process ends.
func (p *published) yields() bool {
	return p.Kind == store.ChangeBlock || p.Kind == store.ChangeHold
}

// drop drops the change that ends soonest of those that yield, so that a caller that is denied
// often, or holds much, leaves room for others.
func (f *feed) drop() (dropped bool) {
	var soonest published
	for _, p := range f.changes {
		if p.yields() && (!dropped || p.expires < soonest.expires) {
			soonest, dropped = p, true
		}
	}
	if dropped {
		delete(f.changes, soonest.ID)
	}
	return dropped
}

func (f *feed) put(p published) {
	if len(f.changes) == 0 {
		f.changes, f.soonest = make(map[store.EventID]published), p.expires
	}
	f.soonest = min(f.soonest, p.expires)
	f.changes[p.ID] = p
}

func (f *feed) since(since, now store.Instant) []store.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changes []store.Change
	for _, p := range f.changes {
		if p.expires > now && (p.at >= since || p.ID.Instant() >= since) {
			changes = append(changes, p.Change)
		}
	}
	return changes
}

func (f *feed) sweep(now store.Instant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.expire(now)
}

// expire drops what has expired, if anything has.
func (f *feed) expire(now store.Instant) {
	if len(f.changes) == 0 || f.soonest > now {
		return
	}
	f.soonest = store.Distant
	for id, p := range f.changes {
		if p.expires <= now {
			delete(f.changes, id)
		} else {
			f.soonest = min(f.soonest, p.expires)
		}
	}
}
