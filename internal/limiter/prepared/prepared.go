package prepared

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/denied"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// A take that is one of several in a call is prepared: it is counted as any take, and then committed, or aborted, which
// gives its units back. Until then its key is in doubt: a call that would be denied only because of prepared units is
// not denied, but waits for them.

// Units holds the units that this instance has prepared. It is safe for concurrent use; the zero value is empty.
type Units struct {
	Changes denied.Changes // changes in the number of a key's doubts
	Number  atomic.Int64   // of units of all keys

	mu    sync.Mutex
	keys  map[store.Key]*keyUnits
	swept time.Time
}

// keyUnits holds the prepared units of one key.
type keyUnits struct {
	units  map[store.EventID]*unit
	doubts int           // number of units that may yet be committed or aborted
	fewer  chan struct{} // closed when a counted one of them is committed or aborted
}

// unit is the prepared units of one take.
type unit struct {
	demand.Target
	term  owner.Term
	state unitState
	entry count.Entry // what was counted; zero while it is being decided
	until time.Time   // the end of the state
}

// unitState is the state of a prepared take.
type unitState int

const (
	unitDeciding unitState = iota
	unitInDoubt            // it counts, and may be aborted
	unitLeft               // the same, but no call waits for it any more
	unitAborted            // before it arrived
)

// ErrInDoubt means that a take could neither be admitted nor denied in time, as that depends on other calls' commits or
// aborts. Nothing was counted.
var ErrInDoubt = errors.New("the decision depends on calls of several demands that are not decided yet")

// InDoubt returns ErrInDoubt in a StoreError.
func InDoubt() error {
	return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, ErrInDoubt)}
}

// Bounds of prepared units.
const (
	maxPrepared = 1 << 16 // units, of some 300 bytes
	// doubtFor is the number of store timeouts for which a key stays in doubt after the deadline of the call that
	// prepared a unit. After that the caller has died, and the unit counts until its window ends.
	doubtFor = 2
	// abortFor is the number of further store timeouts in which an abort still works: an abort that can't reach the
	// owner is repeated.
	abortFor = 30
)

// Doubted reports whether key is in doubt.
func (p *Units) Doubted(key store.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	return k != nil && k.doubts > 0
}

// Begin notes that the requests of batch that prepare are about to be decided, in the key's flight. It fails those that
// were aborted before and those for which there is no room, and returns the others.
func (p *Units) Begin(t *demand.Target, batch []*demand.Charge, o *demand.Settings) (rest []*demand.Charge) {
	if !slices.ContainsFunc(batch, (*demand.Charge).Prepares) {
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

func (p *Units) enter(t *demand.Target, r *demand.Charge, o *demand.Settings) error {
	if p.Number.Load() >= maxPrepared {
		return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %d units are prepared", store.ErrOverloaded, maxPrepared)}
	}
	k := p.key(t.Key)
	if k.units[r.Prepare] != nil {
		return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: it was aborted before it arrived", store.ErrUnavailable)}
	}
	k.units[r.Prepare] = &unit{Target: *t, term: r.Term, until: r.Until.Add(doubtFor * o.StoreTimeout)}
	k.doubts++
	p.Number.Add(1)
	return nil
}

// key returns the units of key, to which the caller adds one. The caller holds the lock.
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

// End records the results of the requests of batch that prepare.
func (p *Units) End(key store.Key, batch []*demand.Charge) {
	if !slices.ContainsFunc(batch, (*demand.Charge).Prepares) {
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

// Commit ends the preparation of id: its units are committed, or have been given back.
func (p *Units) Commit(key store.Key, id store.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remove(key, id)
}

// remove removes a unit. The caller holds the lock.
func (p *Units) remove(key store.Key, id store.EventID) {
	k := p.keys[key]
	if k == nil || k.units[id] == nil {
		return
	}
	switch k.units[id].state {
	case unitDeciding: // it was not counted, so callers that wait would wake in vain
		p.Changes.Note(&key)
		k.doubts--
	case unitInDoubt:
		p.resolve(key, k)
	case unitLeft, unitAborted:
	}
	delete(k.units, id)
	p.Number.Add(-1)
	if len(k.units) == 0 {
		delete(p.keys, key)
	}
}

// resolve reduces key's doubts by one. The caller holds the lock.
func (p *Units) resolve(key store.Key, k *keyUnits) {
	p.Changes.Note(&key)
	k.doubts--
	close(k.fewer)
	k.fewer = make(chan struct{})
}

// Aborts returns where the unit to abort was counted. ok is false if its take has not arrived yet, which will then not
// be decided.
func (p *Units) Aborts(key store.Key, id store.EventID, o *demand.Settings) (t demand.Target, term owner.Term, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweep(o)
	if k := p.keys[key]; k != nil && k.units[id] != nil && k.units[id].state != unitAborted {
		return k.units[id].Target, k.units[id].term, true
	}
	if p.Number.Load() < maxPrepared {
		p.key(key).units[id] = &unit{state: unitAborted, until: time.Now().Add(doubtFor * o.StoreTimeout)}
		p.Number.Add(1)
	}
	return demand.Target{}, nil, false
}

// Counted returns what id has prepared and not yet committed.
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

// Of returns key's counted entries in doubt, and a channel that is closed when one of them is committed or aborted.
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

// Wait waits until fewer is closed. It returns an error if atMost passes or ctx ends before.
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

// sweep ends, at intervals, states that have lasted too long. The caller holds the lock.
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
