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

// A take of a call of several demands is first prepared, which counts it like any other take. Then it is committed, or it
// is aborted and its units are given back. Until then its key is in doubt: a call that would be denied only because of
// prepared units is not denied, but waits until they are committed or aborted.

// Units holds the units that this instance has prepared. It is safe for concurrent use; the zero value is empty.
type Units struct {
	Changes denied.Changes // of the number of a key's doubts
	Number  atomic.Int64   // of prepared units of all keys

	mu    sync.Mutex
	keys  map[store.Key]*keyUnits
	swept time.Time
}

// keyUnits holds the prepared units of one key.
type keyUnits struct {
	units  map[store.EventID]*unit
	doubts int           // number of units that may yet be committed or aborted
	fewer  chan struct{} // closed when one of them that is counted is committed or aborted
}

// unit is the prepared units of one take.
type unit struct {
	demand.Target
	term  owner.Term
	state unitState
	entry count.Entry // the counted units; zero while the take is being decided
	until time.Time   // the end of the state
}

// unitState is the state of a prepared take.
type unitState int

const (
	unitDeciding unitState = iota
	unitInDoubt            // it counts, may be aborted, and calls wait for it
	unitLeft               // it counts and may be aborted, but no call waits for it any more
	unitAborted            // the abort came before the take
)

// ErrInDoubt means that a take could neither be admitted nor denied in time, because that depends on whether other calls
// commit or abort. Nothing was counted.
var ErrInDoubt = errors.New("the decision depends on calls of several demands that are not decided yet")

// InDoubt returns ErrInDoubt in a StoreError.
func InDoubt() error {
	return &count.StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %w", store.ErrUnavailable, ErrInDoubt)}
}

// Bounds of prepared units.
const (
	maxPrepared = 1 << 16 // units, of some 300 bytes
	// doubtFor is the number of store timeouts for which a key stays in doubt after the deadline of the call that
	// prepared a unit. The instance of that call has probably died by then, and the unit counts until its window ends.
	doubtFor = 2
	// abortFor is the number of further store timeouts in which a unit can still be aborted: an instance repeats an
	// abort that does not reach the owner.
	abortFor = 30
)

// Doubted reports whether key is in doubt.
func (p *Units) Doubted(key store.Key) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[key]
	return k != nil && k.doubts > 0
}

// Begin notes that the requests of batch are about to be decided, as the key's batch in progress. Of those that prepare
// units, it fails the ones that were aborted before, or for which there is no room. It returns all other requests.
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

// End records the results of the requests of batch that prepare units.
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

// Commit ends the preparation of id, because its units are committed or were given back.
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
	case unitDeciding: // its units were not counted, so it wakes no caller that waits
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

// Aborts returns the target and the term of the unit to abort. ok is false if no such unit is prepared: if its take arrives
// later, Begin fails it.
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

// Counted returns the counted units of id, and whether they are prepared and not yet committed.
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

// Wait waits until fewer is closed. It returns an error if atMost passes or ctx ends first.
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

// sweep ends the states that have lasted too long, if enough time has passed since the last sweep. The caller holds the
// lock.
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
