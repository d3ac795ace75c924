package prepared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A take that is one of several in a call is prepared: it is counted as any take is, and then it is
// committed, or aborted, which gives its units back. Until then its key is in doubt: what is denied
// there only because of prepared units is not denied, but waits for these.

// Units are those that this instance has prepared. It is safe for concurrent use; the zero value has none.
type Units struct {
	Changes denied.Changes // how often a key's doubts became more or fewer

	mu    sync.Mutex
	keys  map[store.Key]*keyUnits
	units int // of all keys
	swept time.Time
}

// keyUnits is what is prepared for one key.
type keyUnits struct {
	units  map[store.EventID]*unit
	doubts int           // of these, units that may yet stay or be given back
	fewer  chan struct{} // closed when one of them, which was counted, does
}

// unit is what one take has prepared.
type unit struct {
	demand.Target
	right owner.Right
	state unitState
	entry count.Entry // what was counted, unless it is being decided
	until time.Time   // until when the state may last
}

// unitState is how far a prepared take got.
type unitState int

const (
	unitDeciding unitState = iota
	unitInDoubt            // it counts, and may be aborted
	unitLeft               // the same, and nobody waits for it any more
	unitAborted            // before it came
)

// ErrInDoubt is a take that could neither be admitted nor denied in time: that depends on what becomes
// of other calls. Nothing was counted.
var ErrInDoubt = errors.New("it depends on calls of several demands that are not decided yet")

// InDoubt returns the error of such a take, a StoreError.
func InDoubt() error {
	return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, ErrInDoubt)}
}

// Bounds of what is prepared.
const (
	maxPrepared = 1 << 16 // units, of some 300 bytes
	// doubtFor is for how many store timeouts a key is in doubt after whoever prepared a unit had to have
	// decided: it is gone then, and its unit counts until its window is over.
	doubtFor = 2
	// abortFor is for how many more it can be aborted all the same: an abort that finds no way is repeated.
	abortFor = 30
)

// Doubted reports whether key is in doubt.
func (p *Units) Doubted(key store.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	return k != nil && k.doubts > 0
}

// Begin notes that those of batch that prepare are about to be decided, under the key's flight. It fails
// those that were aborted before, and those that there is no room for, and returns the others.
func (p *Units) Begin(t *demand.Target, batch []*demand.Request, o *demand.Settings) (rest []*demand.Request) {
	if !slices.ContainsFunc(batch, (*demand.Request).Prepares) {
		return batch
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(o)
	for _, r := range batch {
		if r.Prepares() {
			if r.Err = p.enter(t, r, o); r.Err != nil {
				continue
			}
		}
		rest = append(rest, r)
	}
	p.Changes.Note(&t.Key)
	return rest
}

func (p *Units) enter(t *demand.Target, r *demand.Request, o *demand.Settings) error {
	if p.units >= maxPrepared {
		return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %d units are prepared", store.ErrOverloaded, maxPrepared)}
	}
	k := p.key(t.Key)
	if k.units[r.Prepare] != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: it was aborted before it came", store.ErrUnavailable)}
	}
	k.units[r.Prepare] = &unit{Target: *t, right: r.Right, until: r.Until.Add(doubtFor * o.StoreTimeout)}
	k.doubts++
	p.units++
	return nil
}

// key returns what is prepared for key, to which something is about to be added. The lock is held.
func (p *Units) key(key store.Key) *keyUnits {
	if p.keys == nil {
		p.keys = make(map[store.Key]*keyUnits)
	}
	k := p.keys[key]
	if k == nil {
		k = &keyUnits{units: make(map[store.EventID]*unit), fewer: make(chan struct{})}
		p.keys[key] = k
	}
	return k
}

// End says what became of those of batch that prepare.
func (p *Units) End(key store.Key, batch []*demand.Request) {
	if !slices.ContainsFunc(batch, (*demand.Request).Prepares) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range batch {
		switch {
		case !r.Prepares():
		case r.Err == nil && r.Decision.Recorded == count.RecordedYes:
			u := p.keys[key].units[r.Prepare]
			u.state, u.entry = unitInDoubt, r.Decision.Entry
		default:
			p.remove(key, r.Prepare)
		}
	}
}

// Commit says that what was prepared stays, or that it is given back.
func (p *Units) Commit(key store.Key, id store.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(key, id)
}

// remove forgets a unit. The lock is held.
func (p *Units) remove(key store.Key, id store.EventID) {
	k := p.keys[key]
	if k == nil || k.units[id] == nil {
		return
	}
	switch k.units[id].state {
	case unitDeciding: // it was not counted: who waits for it to be less would wake for nothing
		p.Changes.Note(&key)
		k.doubts--
	case unitInDoubt:
		p.resolve(key, k)
	case unitLeft, unitAborted:
	}
	delete(k.units, id)
	p.units--
	if len(k.units) == 0 {
		delete(p.keys, key)
	}
}

// resolve has key in one doubt less. The lock is held.
func (p *Units) resolve(key store.Key, k *keyUnits) {
	p.Changes.Note(&key)
	k.doubts--
	close(k.fewer)
	k.fewer = make(chan struct{})
}

// Aborts returns where the unit was counted that is to be aborted. False: it did not come yet, and will not
// be decided.
func (p *Units) Aborts(key store.Key, id store.EventID, o *demand.Settings) (t demand.Target, right owner.Right, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(o)
	if k := p.keys[key]; k != nil && k.units[id] != nil && k.units[id].state != unitAborted {
		return k.units[id].Target, k.units[id].right, true
	}
	if p.units < maxPrepared {
		p.key(key).units[id] = &unit{state: unitAborted, until: time.Now().Add(doubtFor * o.StoreTimeout)}
		p.units++
	}
	return demand.Target{}, nil, false
}

// Counted returns what id has prepared and not committed.
func (p *Units) Counted(key store.Key, id store.EventID) (count.Entry, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil || k.units[id] == nil {
		return count.Entry{}, false
	}
	u := k.units[id]
	return u.entry, u.state == unitInDoubt || u.state == unitLeft
}

// Of returns what was counted for key and is in doubt, and what is closed when that is less.
func (p *Units) Of(key store.Key) (entries []count.Entry, fewer <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	if k == nil {
		return nil, nil
	}
	for _, u := range k.units {
		if u.state == unitInDoubt {
			entries = append(entries, u.entry)
		}
	}
	return entries, k.fewer
}

// Wait waits until fewer is closed. The error says that it is not in time.
func (p *Units) Wait(ctx context.Context, fewer <-chan struct{}, atMost time.Duration, o *demand.Settings) error {
	p.mu.Lock()
	p.sweep(o)
	p.mu.Unlock()
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-fewer:
		return nil
	case <-timer.C:
		return context.DeadlineExceeded
	case <-ctx.Done():
		return ctx.Err()
	}
}

// sweep ends, from time to time, what has lasted for too long. The lock is held.
func (p *Units) sweep(o *demand.Settings) {
	now := time.Now()
	if now.Sub(p.swept) < o.StoreTimeout/4 {
		return
	}
	p.swept = now
	for key, k := range p.keys {
		for id, u := range k.units {
			switch {
			case u.state == unitDeciding || now.Before(u.until):
			case u.state == unitInDoubt:
				u.state, u.until = unitLeft, now.Add(abortFor*o.StoreTimeout)
				p.resolve(key, k)
			default:
				p.remove(key, id)
			}
		}
	}
}
