package counted

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/cas"
	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/totals"
)

// behind is the write-behind of units that owners admit from memory under GuaranteeLocal. It writes them every sync
// interval, many keys at a time, and writes a key's units before the key is read or opened.
//
// An owner admits units only while its term was verified within patience. Once units of a key have waited for longer than
// patience, they are written before the key admits more. So an owner that is set out, or can't reach the store, soon
// admits nothing.
type behind struct {
	tallies *totals.Totals
	serial  *cas.Decider
	owned   *owned
	opts    *demand.Settings

	shards          [behindShards]behindShard
	keys, events    atomic.Int64  // numbers of those that wait to be written
	written, failed atomic.Uint64 // see Behind
}

// behindShard holds a part of the keys with unwritten units.
type behindShard struct {
	mu   sync.Mutex
	keys map[store.Key]*unwritten
}

// unwritten has the units of one key that are not stored yet. They were admitted under plans that share a state and have
// the same windows, so they are written under one of these plans. Before any other plan admits units, the key is written
// and read again.
type unwritten struct {
	target   demand.Target
	since    time.Time // when the oldest unit was admitted
	gathered gathered
	pending  *pendingDelta // changes of the key's cell; nil: none
	doubt    *pendingDelta // earlier changes, which are being written or may be stored already; nil: none

	trip   chan struct{} // closed when the write in progress is answered; nil: no write is in progress
	inTrip gathered      // units in that write
	began  time.Time     // when that write began
}

// gathered has units for logs and totals.
type gathered struct {
	events []store.Event
	counts []store.Count
}

// Bounds of unwritten units. Past them units are written before they are admitted.
const (
	behindShards       = 64      // so many that two cores rarely wait for the same lock
	MaxUnwrittenKeys   = 1 << 16 // of 300 bytes: 20 MiB; Totals has room for them while writes are repeated
	maxUnwrittenEvents = 1 << 20 // of 40 bytes: 40 MiB
	// tripKeys is the number of keys that are written together, and trips the number of such groups at a time: so many
	// that the keys of each node fill its requests, and so few that the store has time for decisions.
	tripKeys, trips = 32, 2
	tripEvents      = 32              // of a key in one request
	lastTrips       = 2 * time.Second // timeout for all unwritten units when the engine ends
)

// localCaveat is the limitation of GuaranteeLocal.
const localCaveat = "guarantee local writes behind: beyond the limit, units that an instance has admitted and not yet written " +
	"when it dies or is set out may be admitted again"

// LocalPromise returns the limitations of p's guarantee. p is a policy that is written behind.
func LocalPromise(p *policy.Policy, serial policy.Level) (caveat string) {
	scope, more := p.Consistency.Scope(), p.Consistency.Caveat()
	if p.InCells() {
		scope, more = serial.Scope(), serial.Caveat()
	}
	switch {
	case scope == policy.ScopeDatacenter:
		more = "each data centre counts on its own"
	case more == "":
		return localCaveat
	}
	return localCaveat + "; " + more
}

// Behind has figures on an engine's write-behind.
type Behind struct {
	Waiting int           // keys with unwritten units
	Lag     time.Duration // since the oldest unwritten unit was admitted
	Written uint64        // acknowledged writes, of one key each
	Failed  uint64        // failed writes, which are repeated
}

// lag returns how long the oldest units of s have waited.
func (s *behindShard) lag() (lag time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.keys {
		lag = max(lag, time.Since(u.since))
	}
	return lag
}

// waitsSince reports whether some units have waited since an instant, or longer.
func (b *behind) waitsSince(at time.Time) bool {
	for i := range b.shards {
		sh := &b.shards[i]
		sh.mu.Lock()
		for _, u := range sh.keys {
			if !u.since.After(at) {
				sh.mu.Unlock()
				return true
			}
		}
		sh.mu.Unlock()
	}
	return false
}

func (b *behind) shard(key store.Key) *behindShard { return &b.shards[key.Prefix()%behindShards] }

// patience is the longest time that units may wait to be written, and for which a term is used after it was verified.
func (b *behind) patience() time.Duration { return b.opts.SyncInterval + b.opts.StoreTimeout }

// verifyTerm verifies term, unless that was done within patience. Its errors are those of Term.Verify.
func (b *behind) verifyTerm(ctx context.Context, term owner.Term) error {
	if time.Since(term.Verified()) < b.patience() {
		return nil
	}
	return term.Verify(ctx)
}

// hasRoom reports whether units of key may wait to be written. Otherwise they must be written before they are admitted.
func (b *behind) hasRoom(key store.Key) bool {
	sh := b.shard(key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := sh.keys[key]
	return b.events.Load() < maxUnwrittenEvents &&
		(u == nil && b.keys.Load() < MaxUnwrittenKeys || u != nil && time.Since(u.since) < b.patience())
}

// add queues own, which was admitted for t by k, to be written.
func (b *behind) add(t *demand.Target, own *units, k *keyState) {
	sh := b.shard(t.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	u := b.waitingFor(sh, t)
	switch {
	case t.Plan.Cell:
		b.events.Add(int64(u.addToCell(own, k)))
	case len(t.Plan.Logs) > 0:
		u.gathered.events = append(u.gathered.events, own.events...)
		b.events.Add(int64(len(own.events)))
	}
	u.gathered.add(own.counts)
}

// waitingFor returns the unwritten units of t, and adds t to sh if it has none. The shard is locked.
func (b *behind) waitingFor(sh *behindShard, t *demand.Target) *unwritten {
	u := sh.keys[t.Key]
	if u == nil {
		if sh.keys == nil {
			sh.keys = make(map[store.Key]*unwritten)
		}
		u = &unwritten{target: *t, since: time.Now()}
		sh.keys[t.Key] = u
		b.keys.Add(1)
	}
	return u
}

// add adds counts to those of g.
func (g *gathered) add(counts []store.Count) {
	s := store.State{Counts: g.counts}
	for _, c := range counts {
		s.Add(c)
	}
	g.counts = s.Counts
}

// run writes the unwritten units every interval until ctx ends, and then those that remain, small keys included.
func (b *behind) run(ctx context.Context) {
	tick := time.NewTicker(b.opts.SyncInterval)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			b.owned.trimSmall()
			b.sync(ctx)
		case <-ctx.Done():
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTrips)
	defer cancel()
	b.owned.queueAllSmall(ctx, func(store.Key, *keyState) bool { return true })
	b.flush(ctx)
}

// flush writes all unwritten units, until ctx ends.
func (b *behind) flush(ctx context.Context) {
	for b.keys.Load() > 0 && ctx.Err() == nil {
		if b.sync(ctx); b.keys.Load() > 0 {
			_ = clock.Pause(ctx, owner.Pause)
		}
	}
}

// sync writes the units of all keys without a write in progress.
func (b *behind) sync(ctx context.Context) {
	if b.keys.Load() == 0 {
		return
	}
	bounded.Each(trips, b.waiting(), func(group []*unwritten) { _ = b.write(ctx, group) })
}

// waiting returns the unwritten units in groups of keys, and begins the write of each. It goes shard by shard, so that
// room for further units becomes free meanwhile.
func (b *behind) waiting() iter.Seq[[]*unwritten] {
	return func(yield func([]*unwritten) bool) {
		var group []*unwritten
		for i := range b.shards {
			sh := &b.shards[i]
			sh.mu.Lock()
			for _, u := range sh.keys {
				if u.trip == nil {
					u.begin()
					group = append(group, u)
				}
			}
			sh.mu.Unlock()
			for ; len(group) >= tripKeys; group = group[tripKeys:] {
				yield(group[:tripKeys])
			}
		}
		if len(group) > 0 {
			yield(group)
		}
	}
}

// writeKey writes key's unwritten units, and removes units that are stored ahead from its totals.
func (b *behind) writeKey(ctx context.Context, key store.Key) error {
	b.owned.queueSmall(key)
	sh := b.shard(key)
	for {
		sh.mu.Lock()
		u := sh.keys[key]
		if u == nil {
			sh.mu.Unlock()
			return b.tallies.DropAheadOf(ctx, key)
		}
		trip := u.trip
		if trip == nil {
			u.begin()
		}
		sh.mu.Unlock()
		if trip == nil {
			if err := b.write(ctx, []*unwritten{u}); err != nil {
				return err
			}
			continue
		}
		select {
		case <-trip:
		case <-ctx.Done():
			return fmt.Errorf("%w: units that were admitted earlier are not written yet: %w", store.ErrUnavailable, ctx.Err())
		}
	}
}

// begin begins a write of u's units. Changes of a cell wait while earlier ones are in doubt. The shard is locked.
func (u *unwritten) begin() {
	u.trip, u.began = make(chan struct{}), time.Now()
	u.inTrip, u.gathered = u.gathered, gathered{}
	if u.doubt == nil {
		u.doubt, u.pending = u.pending, nil
	}
}

// keyWrite is one key's part of a group write.
type keyWrite struct {
	*unwritten
	open   int      // number of writes without an answer
	left   gathered // units of failed writes
	failed error    // of a failed write; nil: none has failed
}

// write writes the units of group whose write has begun. It returns an error if some of them must be written again.
func (b *behind) write(ctx context.Context, group []*unwritten) (failed error) {
	ctx, cancel := context.WithTimeout(ctx, b.opts.StoreTimeout)
	defer cancel()
	var writes []store.Write
	var parts []*keyWrite // the key's part to which each of writes belongs
	var mu sync.Mutex
	answered := func(d *keyWrite, left gathered, err error) {
		mu.Lock()
		defer mu.Unlock()
		d.left.events, d.failed = append(d.left.events, left.events...), cmp.Or(err, d.failed)
		d.left.add(left.counts)
		if d.open--; d.open == 0 {
			failed = cmp.Or(d.failed, failed)
			b.finish(d)
		}
	}
	var all sync.WaitGroup
	for _, u := range group {
		d := &keyWrite{unwritten: u}
		if u.target.Plan.Cell {
			d.open = 1
			all.Go(func() { answered(d, gathered{}, b.writeBuckets(ctx, u)) })
			continue
		}
		from := len(writes)
		writes = u.appendWrites(writes)
		d.open = len(writes) - from
		parts = append(parts, slices.Repeat([]*keyWrite{d}, d.open)...)
	}
	if len(writes) == 0 {
		all.Wait()
		return failed
	}
	b.tallies.WriteEach(ctx, writes, func(i int, err error) {
		left := gathered{}
		if err != nil {
			left = gathered{writes[i].Events, writes[i].Again(err).Add}
		}
		answered(parts[i], left, err)
	})
	all.Wait()
	return failed
}

// appendWrites appends the writes of u.inTrip to writes.
func (u *unwritten) appendWrites(writes []store.Write) []store.Write {
	p := u.target.Plan
	w := store.Write{Key: u.target.Key, Level: p.Consistency.Write, Logs: p.LogWrites, Add: u.inTrip.counts, Tally: p.Tally, Span: p.Span}
	for events := u.inTrip.events; ; w.Add = nil {
		n := min(len(events), tripEvents)
		w.Events, events = events[:n:n], events[n:]
		writes = append(writes, w)
		if len(events) == 0 {
			return writes
		}
	}
}

// finish ends d's part of the write. Units of failed writes wait again, unless they no longer count.
func (b *behind) finish(d *keyWrite) {
	u, now := d.unwritten, b.opts.Timing.Instant()
	if d.failed != nil {
		b.failed.Add(1)
		horizon := now.Add(-u.target.Plan.LongestWindow() - b.opts.Timing.Slack())
		d.left.events = slices.DeleteFunc(d.left.events, func(e store.Event) bool { return e.At < horizon })
		d.left.counts = slices.DeleteFunc(d.left.counts, func(c store.Count) bool { return c.Expires.Add(b.opts.Timing.Slack()) < now })
	} else {
		b.written.Add(1)
	}
	sh := b.shard(u.target.Key)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	b.events.Add(int64(len(d.left.events) - len(u.inTrip.events)))
	u.gathered.events, u.inTrip = append(d.left.events, u.gathered.events...), gathered{}
	u.gathered.add(d.left.counts)
	if d.failed == nil {
		u.since = u.began
		b.endDoubt(u)
	} else if u.doubt != nil && u.doubt.hasDrained(&u.target, now) {
		b.endDoubt(u)
	}
	close(u.trip)
	u.trip = nil
	if len(u.gathered.events)+len(u.gathered.counts) == 0 && u.pending == nil && u.doubt == nil {
		delete(sh.keys, u.target.Key)
		b.keys.Add(-1)
	}
}

// endDoubt drops u.doubt: its changes are stored, or no longer count. The shard is locked.
func (b *behind) endDoubt(u *unwritten) {
	if u.doubt != nil {
		b.events.Add(-int64(len(u.doubt.changes)))
		u.doubt = nil
	}
}
