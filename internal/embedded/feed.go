package embedded

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// feed holds published news until they expire.
type feed struct {
	mu      sync.Mutex
	changes map[store.EventID]published
	latest  map[store.Key]store.EventID // the change with each key's latest override
	soonest store.Instant               // no change expires before this
}

// published is a change and the instants of its publication and expiry by the store's clock.
type published struct {
	store.Change
	at      store.Instant
	expires store.Instant
}

// maxChanges bounds the changes in memory, to about 10 MiB. If it is reached, blocks, which live until they end, and holds,
// which live for up to an hour, make room for other changes. Resets and refunds live only for seconds.
const maxChanges = 1 << 16

// Publish keeps c for its TTL. The error wraps store.ErrOverloaded if there is no room for c. Only the next process needs news
// of holds, so they are kept only if there is a disk.
func (s *Store) Publish(_ context.Context, c *store.Change) error {
	if c.Kind == store.ChangeHold && s.saver.disk == nil {
		return nil
	}
	now := s.instant()
	p := published{Change: *c, at: now, expires: now.Add(c.TTL)}
	if c.Stays() {
		p.expires = store.Distant
	}
	return s.feed.add(p, now)
}

// Overrides returns the overrides that have not expired.
func (s *Store) Overrides(context.Context, policy.Level) ([]store.Change, error) {
	changes := s.feed.between(0, store.Distant, s.instant())
	return slices.DeleteFunc(changes, func(c store.Change) bool { return c.Kind != store.ChangeOverride }), nil
}

// Changes returns the changes that were dated or published since q.Since, are dated before q.Until, and have not
// expired.
func (s *Store) Changes(_ context.Context, q *store.ChangeQuery) ([]store.Change, error) {
	return s.feed.between(q.Since, cmp.Or(q.Until, store.Distant), s.instant()), nil
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

// yields reports whether p makes room for other news: it is a block or a hold, which stays in effect until this process
// ends even if its news are dropped.
func (p *published) yields() bool {
	return p.Kind == store.ChangeBlock || p.Kind == store.ChangeHold
}

// drop drops the change that expires first of those that yield, so that a caller that is often denied, or holds many units,
// leaves room for others.
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
		f.changes, f.latest, f.soonest = make(map[store.EventID]published), make(map[store.Key]store.EventID), p.expires
	}
	if p.Kind == store.ChangeOverride && !f.replace(&p) {
		return
	}
	f.soonest = min(f.soonest, p.expires)
	f.changes[p.ID] = p
}

// replace makes p the override of its key. It returns false if there is a later one.
func (f *feed) replace(p *published) bool {
	before, there := f.latest[p.Key]
	if there && before.IsAfter(p.ID) {
		return false
	}
	delete(f.changes, before)
	f.latest[p.Key] = p.ID
	return true
}

// forget drops p.
func (f *feed) forget(p *published) {
	delete(f.changes, p.ID)
	if f.latest[p.Key] == p.ID {
		delete(f.latest, p.Key)
	}
}

func (f *feed) between(since, until, now store.Instant) []store.Change {
	f.mu.Lock()
	defer f.mu.Unlock()
	var changes []store.Change
	for _, p := range f.changes {
		dated := p.ID.Instant()
		if p.expires > now && dated < until && (p.at >= since || dated >= since) {
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

// expire drops expired news.
func (f *feed) expire(now store.Instant) {
	if len(f.changes) == 0 || f.soonest > now {
		return
	}
	f.soonest = store.Distant
	for _, p := range f.changes {
		if p.expires <= now {
			f.forget(&p)
		} else {
			f.soonest = min(f.soonest, p.expires)
		}
	}
}
