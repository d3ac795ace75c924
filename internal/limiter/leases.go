package limiter

import (
	"context"
	"slices"
	"sync"
	"time"
)

// leases are units that this process has counted ahead of the requests for them, in the
// windows of keys that it is asked for often and that have much room left. It hands them
// out from memory, without asking the store: they were counted, and found to fit, as if
// they had been admitted when they were. So nothing of what counting after writing
// promises changes: in the store there is nothing to tell a lease from units that were
// admitted.
//
// What it may cost others is bounded: they may be denied for what is left of a lease, and
// see it as used. A lease is at most a leaseShare of the room that there was, at most as
// much as this process has taken from the key already or, under LeasesEarly, an earlyShare
// of the limit, and what is left of it is given back in the end. Where the room is less
// than minLeaseRoom, there are none.
//
// But a key at its limit gets room as time passes: the previous window of a sliding tail
// fades. Under LeasesEarly what will fade within fadeAhead is counted ahead as well, up to
// an earlyShare of the limit, and each unit is handed out once it fits. Until then it is
// counted, and so denies others, no less than it will.
//
// Over a log, units ahead are rows: leaserows.go has what is different.
//
// Answers of a lease tell of others what was known when it was granted. When it is too old
// for that, the next request reads; it writes nothing if enough is left.
type leases struct {
	opts  *Options
	store Store                                  // that counts as the requests' own do
	give  func(t *target, back []Count)          // gives back what is left of a lease
	mark  func(Key) uint64                       // changes when a key is reset
	deny  func(*target, *State, Instant) Instant // until when a denial that rests on a state is remembered
	erase func(t *target, rows []EventID)        // removes rows of a log that nobody was admitted for

	shards [leaseShards]leaseShard
	taken  recent[demand] // by keys without one

	rows recent[[]ownRow] // that were counted ahead in logs
}

// leaseShard is the live leases of a part of the keys.
type leaseShard struct {
	mu   sync.Mutex
	live map[Key]*lease
}

// demand is what this process has admitted for a key in the window that ends then, and
// what room it saw last.
type demand struct {
	ends  Instant
	units int64
	room  int64
	fades int64 // how much more room there will be after fadeAhead
}

// lease is what was counted for a key when it was granted, and what of it is left.
type lease struct {
	target target
	epoch  Instant // the reset that it is counted under
	since  Instant // when it was counted
	made   Instant // the same by this instance's clock, which a reset may be ahead of
	until  Instant // the end of its age
	back   Instant // when what is left is given back
	ends   Instant // the end of the first of the windows
	denies Instant // until when state denies what it leaves no room for; 0: it is asked for
	fits   bool    // all of it did when it was granted
	high   bool    // its key was high then
	size   int64   // how much it was then
	next   []Count // what is counted in the next window as well; its shard's lock guards it

	mu    sync.Mutex
	state State // all that counts, without what is left
	left  int64
	rows  []EventID // over a log: what is left
	taken int64     // in these windows, by this process
}

// Bounds of leases.
const (
	// leaseAfter is how many units of a key a process takes one by one in a window
	// before it takes any ahead: who looks at a caller with a few requests sees them all.
	leaseAfter = 4
	// leaseShare is the part of a key's room that one process may take ahead: 16 of them
	// that stand still leave a third of it to others.
	leaseShare = 16
	// minLeaseRoom is the least room that is taken ahead from: small limits are exact.
	minLeaseRoom = 128
	// earlyShare is the part of a limit that is counted ahead with a key's first unit in a
	// window, under LeasesEarly.
	earlyShare = 64
	// maxLeaseAge is how long units are kept that nobody asks for, and how old what an
	// answer tells of others may be.
	maxLeaseAge = 5 * time.Second
	// The same under LeasesEarly, where most keys have a lease that few ask for: giving
	// back costs as much as counting, and nothing once the window is over.
	maxEarlyAge, maxEarlyIdle = 30 * time.Second, time.Minute
	// fadeAhead is how far ahead room is counted that is not there yet: no longer than
	// units are kept that nobody asks for.
	fadeAhead = maxLeaseAge
	// maxLeases bounds those that are live, of a few hundred bytes each, in parts that are
	// looked through in less than a millisecond.
	maxLeases, leaseShards = 1 << 16, 64
	// leaseSweep is how often those are looked for that are too old.
	leaseSweep = time.Second
)

// leasable reports whether units under p may be taken ahead: all of them are sums of
// windows, or rows of one log, and news of resets comes.
func (l *leases) leasable(t *target) bool {
	p := t.plan
	inWindows := p.counters && !p.cell && len(p.logs) == 0 && p.Count == CountAdmitted
	return p.Leases != LeasesOff && (inWindows || p.ahead > 0) && len(t.old) == 0 &&
		(l.opts.Feed != nil || l.opts.eager) && !l.opts.forgetful
}

// answer fills in d on a request of t at now, and reports true, if a lease of its key
// holds enough for it, or knows of no room.
func (l *leases) answer(d *Decision, t *target, op Op, cost int64, ids *eventIDs, now Instant) bool {
	held := l.of(t.key, now)
	if held == nil || op != OpTake && op != OpRecord {
		return false
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	if held.target.plan != t.plan || now >= held.until || now >= held.ends || l.opts.isSetBack(held.made, now) {
		return false
	}
	at := max(now, held.since)
	if op == OpTake && now < held.denies && t.plan.refuse(d, &held.state, cost, at, now) {
		return true
	}
	if !held.handOut(d, op, cost, ids, at) {
		return false
	}
	if t.plan.ahead > 0 {
		l.know(t, ownRow{d.entry.id, at})
	}
	d.postpone(at.Sub(now))
	return true
}

// handOut fills in d and reports true if cost is left, and fits at an instant.
func (h *lease) handOut(d *Decision, op Op, cost int64, ids *eventIDs, at Instant) bool {
	if h.left < cost || len(h.rows) > 0 && cost != 1 { // a row is one unit
		return false
	}
	var id EventID
	if len(h.rows) > 0 {
		id = h.rows[0]
	} else {
		id = ids.next(at)
	}
	h.target.plan.decide(d, &h.state, op, id, at, cost)
	if d.Recorded != RecordedYes {
		return false
	}
	d.Leased = true
	d.entry = entry{id: id, at: at, epoch: h.epoch, cost: cost}
	h.left -= cost
	h.rows = h.rows[min(1, len(h.rows)):]
	h.taken += cost
	return true
}

// askAgain has what a lease of key knows of no room for asked for again: something was
// given back.
func (l *leases) askAgain(key Key) {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.live[key]
	if held == nil {
		return
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	held.denies = 0
}

func (l *leases) shard(key Key) *leaseShard { return &l.shards[key.Prefix()%leaseShards] }

// of returns the lease of key at now, nil for none.
func (l *leases) of(key Key, now Instant) *lease {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(key, now)
}

// spare is what is counted of a lease and not handed out: in its window, and in the next.
type spare struct{ here, next int64 }

// spare returns what is spare of a lease of t at now.
func (l *leases) spare(t *target, now Instant) spare {
	s := l.shard(t.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.of(t.key, now)
	if held == nil || !held.target.countsWith(t) {
		return spare{}
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	next := unitsOf(held.next)
	return spare{here: held.left + next, next: next}
}

// discount takes what is spare of a lease out of s, which was read since before was:
// whoever asks this process is not denied for it.
func (l *leases) discount(t *target, before spare, s *State, now Instant) {
	shard := l.shard(t.key)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	held := shard.of(t.key, now)
	if held == nil || before.here == 0 || !held.target.countsWith(t) {
		return
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	next := min(before.next, unitsOf(held.next))
	here := min(before.here, held.left+next)
	for _, c := range slices.Concat(held.counts(-here), withUnits(held.next, -next)) {
		s.add(c)
	}
}

// countsWith reports whether t counts in the same counter as other: a reload may have changed that.
func (t *target) countsWith(other *target) bool {
	return counterAt(t.key, t.plan.tally, t.plan.span) == counterAt(other.key, other.plan.tally, other.plan.span)
}

// unitsOf returns how many units are in each of counts.
func unitsOf(counts []Count) int64 {
	if len(counts) == 0 {
		return 0
	}
	return counts[0].Units
}

// draw ends the lease of t, so that nobody else is answered by it, and fills in what own
// may make of it.
func (l *leases) draw(t *target, own *units, now Instant) {
	if !l.leasable(t) {
		return
	}
	known, _ := l.taken.get(t.key)
	held, full := l.remove(t.key, now)
	l.giveRowsBack(held)
	switch {
	case held == nil:
	case held.target.plan == t.plan && !l.opts.isSetBack(held.made, now):
		known, own.lease, own.next = held.demand(now), held.rest(), held.next
	default: // a reload has ended it, and may count elsewhere, or its window is not yet
		l.giveBack(held, now)
	}
	switch {
	case full:
		return
	case t.plan.ahead > 0:
		own.ahead = l.rowsAhead(t, known, own, now)
		return
	}
	if known.ends <= now {
		own.ahead = l.bounds(t.plan).first(t.plan)
		return
	}
	own.taken = known.units
	own.ahead = l.bounds(t.plan).next(t.plan, known, own)
}

// leaseBounds are how much is counted ahead, and from when on, how often leases are looked
// through, and in which part of a window for those that go on in the next.
type leaseBounds struct {
	after, share, early, least, rest, part, spread int64
	sweep, ahead                                   time.Duration
}

// bounds returns those of leases under p: larger ones where few instances are known to share.
func (l *leases) bounds(p *plan) leaseBounds {
	b := leaseBoundsOf(l.opts)
	if s := p.standing; s != nil && !l.opts.eager {
		b.share, b.rest = s.leaseShare(b.share, b.rest)
	}
	return b
}

func leaseBoundsOf(o *Options) leaseBounds {
	if o.eager {
		return leaseBounds{after: 1, share: 2, early: 4, least: 2, rest: 2, sweep: leaseSweep / 10, part: 1, spread: 1, ahead: rowsAheadBy / 300}
	}
	return leaseBounds{
		after: leaseAfter, share: leaseShare, early: earlyShare, least: minLeaseRoom, rest: minLeaseRoom,
		sweep: leaseSweep, part: carryPart, spread: allowanceSpread, ahead: rowsAheadBy,
	}
}

// first returns how many units are counted ahead of a key of which nothing is known.
func (b leaseBounds) first(p *plan) int64 {
	room := p.room(&State{}, 0)
	if !p.Leases.early() || room < b.least {
		return 0
	}
	return room / b.early
}

// next returns how many units own counts ahead of a key of which that is known. It is 0,
// so that nothing is written, where half as many are left when own has its own.
func (b leaseBounds) next(p *plan, known demand, own *units) int64 {
	sum := sumOf(own.batch)
	room := known.room - sum
	if known.units < b.after {
		return 0
	}
	ahead := min(known.fades, b.first(p))
	if room >= b.rest {
		ahead = min(max(known.units, b.first(p)), room/b.share)
	}
	if len(own.lease) > 0 && own.lease[0].Units-sum >= max(1, ahead/2) {
		return 0
	}
	return ahead
}

// demand returns what is known at now of the key of a lease that was removed.
func (h *lease) demand(now Instant) demand {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.target.plan
	return demand{ends: h.ends, units: h.taken, room: p.room(&h.state, h.since), fades: p.fades(&h.state, now, h.ends)}
}

// remove ends the lease that key has at now, and reports whether there is no place for
// another.
func (l *leases) remove(key Key, now Instant) (held *lease, full bool) {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	held = s.of(key, now)
	delete(s.live, key)
	return held, s.full()
}

func (s *leaseShard) full() bool { return len(s.live) >= maxLeases/leaseShards }

// forget drops the lease of key without giving sums back: it was reset, and its mark
// has changed. A log's rows are removed, as that can't be too much.
func (l *leases) forget(key Key) {
	held, _ := l.remove(key, 0)
	l.giveRowsBack(held)
	l.taken.remove(key)
}

// end gives back the lease of key, whose mark has changed: what is let through from now on, by
// an override, it does not know.
func (l *leases) end(key Key, now Instant) {
	if held, _ := l.remove(key, now); held != nil {
		l.giveBack(held, now)
	}
	l.taken.remove(key)
}

// grant makes a lease of as much of what own counted ahead as fits beside state, which
// has all that counts but that, and returns it: nothing if the key may have been reset
// since. admitted is what own has besides.
func (l *leases) grant(t *target, own *units, state *State, admitted int64) (units int64) {
	if !l.leasable(t) {
		return 0
	}
	ends, room := t.plan.windowsEnd(own.now), t.plan.room(state, own.now)
	fades := t.plan.fades(state, own.now, ends)
	units = min(own.ahead, room+fades)
	least := l.bounds(t.plan).rest
	if own.taken == 0 && room < least && t.plan.ahead == 0 {
		units = min(own.ahead, fades) // only now it is known how little there is
	}
	if units == 0 {
		l.taken.put(t.key, demand{ends: ends, units: own.taken + admitted, room: room, fades: fades})
		return 0
	}
	granted := &lease{
		target: *t, epoch: own.epoch, since: own.now, made: l.opts.now(),
		ends: ends, until: own.now.Add(maxLeaseAge), back: own.now.Add(maxLeaseAge), fits: units <= room, high: own.high, size: units,
		state: state.counted(), left: units, taken: own.taken + admitted,
	}
	switch {
	case t.plan.ahead > 0:
		granted.layOut(own, state, units)
	case t.plan.Leases.early():
		granted.until = own.now.Add(maxEarlyAge)
		if granted.fits { // else others may want what of it did not fit
			granted.back = own.now.Add(maxEarlyIdle)
		}
		if room < least {
			granted.denies = l.deny(t, &granted.state, own.now)
		}
	}
	s := l.shard(t.key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.mark(t.key) != own.mark || s.full() {
		return 0
	}
	if s.live == nil {
		s.live = make(map[Key]*lease)
	}
	s.live[t.key] = granted
	if len(own.next) > 0 && own.next[0].Start == ends && own.next[0].Epoch == own.epoch {
		granted.next, own.next = own.next, nil
	}
	return units
}

// doubt notes that what own counts ahead may stay charged, as nobody knows whether it was
// stored. Until the store has answered, nothing more is counted ahead of the key: else
// each request that fails would leave as much behind.
func (l *leases) doubt(t *target, own *units) {
	if own.ahead > 0 {
		l.taken.put(t.key, demand{ends: t.plan.windowsEnd(own.now), units: own.taken})
	}
}

// windowsEnd returns the end of the first to end of the windows that p counts in at now; over
// a log, of which rows are counted ahead, until when those may be handed out.
func (p *plan) windowsEnd(now Instant) Instant {
	if p.ahead > 0 {
		return now.Add(p.ahead)
	}
	ends := Distant
	for i := range p.rules {
		_, end := p.rules[i].windowAt(now)
		ends = min(ends, end)
	}
	return ends
}

// room returns how many units fit beside what s counts at now.
func (p *plan) room(s *State, now Instant) int64 {
	room := int64(MaxLimit)
	for i := range p.rules {
		r := &p.rules[i]
		room = min(room, r.capacity-r.algorithm.used(r, s, now))
	}
	return max(0, room)
}

// fades returns how much more room s leaves after fadeAhead, or just before the first of
// the windows ends, than at now; 0 unless that is counted ahead.
func (p *plan) fades(s *State, now, ends Instant) int64 {
	if !p.Leases.early() || p.ahead > 0 {
		return 0
	}
	soon := min(now.Add(fadeAhead), ends-1)
	return max(0, p.room(s, soon)-p.room(s, now))
}

// run gives back what is left of leases when they are too old, until ctx ends, and then
// of all. It counts in the next window what goes on there. A clock that is beyond the
// tolerance can't tell when.
func (l *leases) run(ctx context.Context) {
	tick := time.NewTicker(leaseBoundsOf(l.opts).sweep)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			if now, err := l.opts.instant(); err == nil {
				l.carry(ctx, l.sweep(now))
			}
		case <-ctx.Done():
		}
	}
	l.sweep(Distant)
}

// sweep ends leases that are over by a moment, now or later, and returns those that it is
// time to carry. What is left of one whose window is over is not worth a write.
func (l *leases) sweep(by Instant) (due []*lease) {
	part := leaseBoundsOf(l.opts).part
	for i := range l.shards {
		now := l.opts.now()
		over, more := l.shards[i].sweep(by, now, l.opts, part)
		for _, held := range over {
			if !l.opts.isSetBack(held.made, now) {
				l.taken.put(held.target.key, held.demand(now))
			}
			l.giveBack(held, now)
		}
		due = append(due, more...)
	}
	return due
}

// giveBack gives back what is left at now of a lease that was removed.
func (l *leases) giveBack(held *lease, now Instant) {
	l.giveRowsBack(held)
	if back := held.rest(); back != nil && now < held.ends {
		l.give(&held.target, back)
	}
	if len(held.next) > 0 {
		l.give(&held.target, held.next)
	}
}

// sweep ends the leases that are over by a moment, or of a clock that was set back, and
// returns them, and those that it is time to carry.
func (s *leaseShard) sweep(by, now Instant, o *Options, part int64) (over, due []*lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, held := range s.live {
		if len(held.next) > 0 {
			held = s.of(key, now)
		}
		switch {
		case min(held.back, held.ends) <= by, o.isSetBack(held.made, now):
			over = append(over, held)
			delete(s.live, key)
		case held.isDue(now, o.slack(), part):
			due = append(due, held)
		}
	}
	return over, due
}

// rest takes what is left of a lease that has ended; nil for nothing.
func (h *lease) rest() []Count {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.left == 0 {
		return nil
	}
	back := h.counts(h.left)
	h.left = 0
	return back
}

// counts returns units as they are counted where h is.
func (h *lease) counts(units int64) []Count {
	return h.target.plan.appendCounts(nil, h.epoch, h.since, units)
}

// grantLease makes a lease of what own counted ahead, and adds to refused what is not granted.
func (c *counted) grantLease(t *target, own, refused *units, state *State) {
	granted := c.leases.grant(t, own, state, sumOf(own.batch)-sumOf(refused.batch))
	for i := range refused.counts {
		refused.counts[i].Units += own.ahead - granted
	}
	own.counts = withUnits(own.counts, sumOf(own.batch))
	c.leases.retract(t, own.rows[min(int(granted), len(own.rows)):])
	c.endLease(t, own)
}

// give gives back counts that were acknowledged and that nobody was admitted for.
func (c *counted) give(t *target, counts []Count) {
	if t.plan.tally {
		c.takeBacks.push(takeBack{write: &Write{
			Key: t.key, Level: t.plan.Consistency.Write, Add: c.tallies.lower(t.key, counts), Tally: true, Span: t.plan.span,
		}})
		return
	}
	c.takeBacks.subtract(t, counts)
}

// giveLeaseBack gives back what was left of the lease that own ended, when nothing was
// added to it.
func (c *counted) giveLeaseBack(t *target, own *units) {
	if own.had > 0 {
		c.give(t, withUnits(own.counts, own.had))
	}
	c.endLease(t, own)
}

// endLease forgets the lease that own ended, and gives back what it had in the next window,
// unless another lease has it now.
func (c *counted) endLease(t *target, own *units) {
	own.lease, own.had, own.ahead = nil, 0, 0
	if len(own.next) > 0 {
		c.give(t, own.next)
		own.next = nil
	}
}
