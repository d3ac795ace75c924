package limiter

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Under LeasesStanding an instance counts a few units of each window ahead of all keys of a
// policy at once: its allowance, which is one row for all of them. By it callers are admitted
// from memory of whom nothing was ever read.
//
// Whoever decides over a key that has much of its limit left need not know of allowances:
// what is counted of it and all allowances together are less than the limit. Whoever finds
// half of it used notes the key in the policy's list of high keys first, reads all
// allowances then, and counts them whole from there on. And whoever has stored an allowance
// reads that list before it uses any of it, and leaves its keys alone. So of an allowance and
// a high key the one that was stored last knows of the other, as of two events that are
// written first and counted then. docs/design.md has the whole proof.
//
// What it costs others: a high key is denied up to all allowances early.
const (
	// highPart is the part of a limit from which on a key is high.
	highPart = 2
	// allowancesPart is the part of a limit that all allowances of a window have together:
	// those of two windows in a row fit beside a key that is not high.
	allowancesPart = 4
	// allowanceSpread is how many times an instance's fair share of that there is room for, as
	// instances that start at the same time don't see each other.
	allowanceSpread = 2
	// fewestShares is the least number of parts of a key's room of which one is taken ahead.
	fewestShares = 4
	// maxAllowance is what can be kept of a key's use of it.
	maxAllowance = 100
	// maxNotes is how many high keys a process notes in a window: after that it says that all
	// are, and nobody makes an allowance beside them.
	maxNotes = 1 << 12
	// allowanceLook is how often it is looked how many instances share, at least.
	allowanceLook = time.Minute
	// allowanceTick is how often it is looked for allowances that are to be made, and
	// allowanceIdle for how long after the last request for one.
	allowanceTick, allowanceIdle = time.Second, time.Minute
)

// allowanceRow is the row of sums of allowances in a state. No store has it: they are kept
// apart from keys.
var allowanceRow = EventID{0: 0xff, 6: 0x10, 8: 0x80}

// standing is what a plan under LeasesStanding has of allowances. Plans that count the same
// way share one.
type standing struct {
	rule       rule
	level      Consistency
	span       Span
	allowances []Key // where they are kept, under each of the hash keys
	high       []Key // where high keys are, likewise

	wary bool // each key is high from its first unit on: of one key with limits of its own, or of small limits

	wanted    atomic.Int64                 // the Instant when an allowance was last asked for, to a tick
	live      atomic.Pointer[[]*allowance] // of this window and the next
	known     recent[highKey]              // of high keys that this process has noted
	over      atomic.Bool                  // there is no allowance, or no more: of a plan that is not in force for all keys
	instances atomic.Int64                 // that had an allowance when this process made its last one; 0: nobody looked
	row       EventID                      // of this process's allowances; zero: none was made yet
	stamp     int64                        // of the latest that was stored
	ended     Instant                      // the start of the latest window of which the allowance was forgotten
	looked    Instant                      // when it was looked how many instances share

	mu    sync.Mutex
	notes int64   // of high keys in the window that begins at all.start
	all   highKey // where all keys are; its allowances are nil while they are not
}

// allowance is what this process may hand out of each key in a window.
type allowance struct {
	start, end Instant
	units      int64
	row        EventID
	high       map[Key]struct{} // keys that it is not for
	spent      *spent
}

// highKey is a key that is noted as high in a window, and the allowances that there were
// after that, without what this process had not spent of its own, and never will.
type highKey struct {
	start      Instant
	allowances []Count
	unspent    []Count
}

// newStanding returns what p has of allowances; nil if it has none.
func newStanding(p *plan, o *Options) *standing {
	if p.Leases != LeasesStanding || !p.tally {
		return nil
	}
	s := &standing{rule: p.rules[0], level: p.Consistency, span: p.span}
	s.wary = s.rule.capacity < leaseBoundsOf(o).least
	for _, keys := range p.keys {
		s.allowances = append(s.allowances, keys.beside("allowances"))
		s.high = append(s.high, keys.beside("high keys"))
	}
	return s
}

// keepStanding has p go on with what before, a plan of the same policy, has of allowances, if
// both count the same way.
func (p *plan) keepStanding(before *plan) {
	if before == nil || before.standing == nil || p.standing == nil {
		return
	}
	old, made := before.standing, p.standing
	if old.rule.Limit == made.rule.Limit && old.level == made.level && slices.Equal(old.allowances, made.allowances) {
		p.standing = old
	}
}

// endStanding ends the allowances of those of before that none of after goes on with.
func endStanding(before, after map[string]*plan) {
	for name, p := range before {
		if goesOn := after[name]; p.standing != nil && (goesOn == nil || goesOn.standing != p.standing) {
			p.standing.over.Store(true)
		}
	}
}

// allow fills in d on a request of t at now, and reports true, if this process's allowance
// has enough left for it.
func (c *counted) allow(d *Decision, t *target, op Op, cost int64, now Instant) bool {
	s := t.plan.standing
	if s == nil || op != OpTake && op != OpRecord || len(t.old) > 0 {
		return false
	}
	a := c.standings.at(s, now)
	if a == nil || cost > a.units || s.over.Load() {
		return false
	}
	if _, high := a.high[t.key]; high || c.standings.exempt(t.key) {
		return false
	}
	before, ok := a.spent.add(t.key, cost, a.units)
	if !ok {
		return false
	}
	epoch, _ := c.resets.get(t.key)
	if now <= epoch {
		return false
	}
	state, _ := c.standings.states.Get().(*State)
	defer c.standings.states.Put(state)
	state.Reset, state.Counts = epoch, append(c.tallies.appendKnown(state.Counts[:0], t.key), s.countOf(now, epoch, before))
	id := c.ids.next(now)
	t.plan.decide(d, state, op, id, now, cost)
	if d.Recorded != RecordedYes { // this process knows that there is no room
		return false
	}
	d.Leased = true
	d.entry = entry{key: t.key, id: id, at: now, epoch: epoch, cost: cost}
	return true
}

// countOf returns units of allowances as they are counted at now under epoch.
func (s *standing) countOf(now, epoch Instant, units int64) Count {
	c := s.rule.countOf(epoch, now, units)
	c.Row = allowanceRow
	return c
}

// isHigh reports whether so much is used of a key at now that allowances matter.
func (s *standing) isHigh(state *State, now Instant) bool {
	r := &s.rule
	return s.wary || r.algorithm.used(r, state, now) >= r.capacity/highPart
}

// at returns the allowance for now, nil for none.
func (s *standing) at(now Instant) *allowance {
	if live := s.live.Load(); live != nil {
		for _, a := range *live {
			if a.start <= now && now < a.end {
				return a
			}
		}
	}
	return nil
}

// addAllowances adds to state, which was read for t and is to be decided at now, what
// counts of allowances: all of them if the key is high, of which others learn before.
func (c *counted) addAllowances(ctx context.Context, t *target, own *units, state *State) error {
	s := t.plan.standing
	own.high = s != nil && s.isHigh(state, own.now)
	if !own.high {
		c.addOwnAllowance(t, state, own.now)
		return nil
	}
	start, _ := s.rule.windowAt(own.now)
	noted, ok := s.noted(t.key, start)
	if !ok {
		var err error
		if noted, err = c.note(ctx, s, t, own.now, noted.unspent); err != nil {
			return err
		}
	}
	state.addUnder(noted.allowances)
	return nil
}

// noted returns what is known of key, or of all, as a high key, and whether it is noted in the
// window that begins at start.
func (s *standing) noted(key Key, start Instant) (highKey, bool) {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	if all.start == start && all.allowances != nil {
		return all, true
	}
	noted, ok := s.known.get(key)
	return noted, ok && noted.start == start
}

// mayNote reports whether another key may be noted in the window that begins at start: else
// all are high.
func (s *standing) mayNote(start Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.start != start {
		s.all, s.notes = highKey{start: start}, 0
	}
	s.notes++
	return s.notes <= maxNotes
}

// addOwnAllowance adds to state what this process has handed out of its own allowance, or
// what it knows of others' if the key is high. It is for states by which nothing is admitted,
// or of keys that are not high.
func (c *counted) addOwnAllowance(t *target, state *State, now Instant) {
	s := t.plan.standing
	if s == nil {
		return
	}
	start, _ := s.rule.windowAt(now)
	if noted, ok := s.noted(t.key, start); ok && s.isHigh(state, now) {
		state.addUnder(noted.allowances)
	} else if a := s.at(now); a != nil && a.units > 0 {
		state.addUnder([]Count{s.countOf(now, 0, min(a.units, a.spent.of(t.key)))})
	}
}

// addUnder adds counts to s, which no reset forgets.
func (s *State) addUnder(counts []Count) {
	for _, c := range counts {
		c.Epoch = s.Reset
		s.Counts = append(s.Counts, c)
	}
}

// note notes that t's key is high in the window of now, and returns the allowances that
// there are then. Some of what is unspent may be known from another window.
func (c *counted) note(ctx context.Context, s *standing, t *target, now Instant, known []Count) (highKey, error) {
	start, end := s.rule.windowAt(now)
	keys, some := append([]Key{t.key}, t.old...), s.mayNote(start)
	if !some {
		keys = make([]Key, len(s.high)) // which stands for all
	}
	for i, key := range keys {
		put := Count{
			Limit: LimitID(hex.EncodeToString(key.sum[:])), Start: start, Expires: end.Add(end.Sub(start)), Units: 1, Row: c.ids.next(now),
		}
		if err := c.standings.put(ctx, s, s.high[i], put, c.opts.Now().UnixMicro()); err != nil {
			return highKey{}, err
		}
	}
	found, err := c.standings.read(ctx, s, s.allowances, now)
	if err != nil {
		return highKey{}, err
	}
	noted := highKey{start: start}
	if some {
		noted.unspent = s.unspent(t.key, found, known)
	}
	noted.allowances = s.sumsOf(append(found, negated(noted.unspent)...))
	if some {
		s.known.put(t.key, noted)
		return noted, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all.start == start {
		s.all = noted
	}
	return noted, nil
}

// unspent ends this process's allowances for key, and returns what is left of those that were
// found.
func (s *standing) unspent(key Key, found, known []Count) (unspent []Count) {
	live := s.live.Load()
	if live == nil {
		return nil
	}
	for _, a := range *live {
		if !slices.ContainsFunc(found, func(c Count) bool { return c.Start == a.start && c.Row == a.row && c.Units == a.units }) {
			continue
		}
		left := s.countOf(a.start, 0, a.units-min(a.units, a.spent.end(key)))
		if i := slices.IndexFunc(known, func(c Count) bool { return c.Start == a.start }); i >= 0 {
			left = known[i] // it was ended then
		}
		unspent = append(unspent, left)
	}
	return unspent
}

// sumsOf returns a sum for each window of counts, not nil.
func (s *standing) sumsOf(counts []Count) []Count {
	sums := State{Counts: []Count{}}
	for _, c := range counts {
		c.Limit, c.Row = s.rule.id, allowanceRow
		sums.add(c)
	}
	return sums.Counts
}

// standings makes the allowances of the plans that are asked for.
type standings struct {
	store Store
	ids   *eventIDs
	opts  *Options

	exempt func(Key) bool // whether a key has, or had, limits of its own, by which it was noted otherwise or not at all
	states sync.Pool      // of *State, by which units of allowances are judged

	mu    sync.Mutex
	asked map[*standing]struct{}
}

// at returns the allowance of s for now, nil for none, and has one made if it is to be.
func (of *standings) at(s *standing, now Instant) *allowance {
	if last := Instant(s.wanted.Load()); now.Sub(last) >= allowanceTick {
		s.wanted.Store(int64(now))
		of.mu.Lock()
		if of.asked == nil {
			of.asked = make(map[*standing]struct{})
		}
		of.asked[s] = struct{}{}
		of.mu.Unlock()
	}
	return s.at(now)
}

// run makes allowances until ctx ends.
func (of *standings) run(ctx context.Context) {
	every := allowanceTick
	if of.opts.eager {
		every /= 10
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if !of.opts.skewed() {
				of.makeAll(ctx, InstantOf(of.opts.Now()))
			}
		case <-ctx.Done():
			return
		}
	}
}

// makeAll makes the allowances that are missing at now, of this window and, late in it, of
// the next. A plan that nobody asks for any more is forgotten.
func (of *standings) makeAll(ctx context.Context, now Instant) {
	of.mu.Lock()
	var asked []*standing
	for s := range of.asked {
		if s.over.Load() || Instant(s.wanted.Load()).Add(allowanceIdle) < now {
			delete(of.asked, s)
			continue
		}
		asked = append(asked, s)
	}
	of.mu.Unlock()
	shareOut(carryWriters, asked, func(s *standing) {
		start, end := s.rule.windowAt(now)
		of.makeOne(ctx, s, start)
		of.look(ctx, s, start, now)
		if part := end.Sub(start) / carryPart; now >= end.Add(-part) || of.opts.eager {
			of.makeOne(ctx, s, end)
		}
	})
}

// makeOne makes the allowance of s for the window that begins at start, unless there is one
// or may be none. If the store fails, it is tried again.
func (of *standings) makeOne(ctx context.Context, s *standing, start Instant) {
	if s.at(start) != nil || start <= s.ended { // what was spent of that is forgotten: a clock went ahead and back
		return
	}
	ctx, cancel := context.WithTimeout(ctx, of.opts.StoreTimeout)
	defer cancel()
	a, err := of.make(ctx, s, start)
	if err != nil {
		return
	}
	live := []*allowance{a}
	if before := s.live.Load(); before != nil {
		for _, b := range *before {
			if b.end.Add(b.end.Sub(b.start)) >= start { // what was spent in the window before is asked for
				live = append(live, b)
			} else {
				s.ended = max(s.ended, b.start)
			}
		}
	}
	s.live.Store(&live)
}

// make stores an allowance for the window that begins at start, and returns it: of no
// units if there is none.
func (of *standings) make(ctx context.Context, s *standing, start Instant) (*allowance, error) {
	r := &s.rule
	_, end := r.windowAt(start)
	none := &allowance{start: start, end: end}
	if s.row == (EventID{}) {
		s.row = of.ids.next(start)
	}
	found, err := of.read(ctx, s, s.allowances, start)
	if err != nil {
		return nil, err
	}
	units := of.share(s, found, start)
	if units <= 0 {
		return none, nil
	}
	if err := of.keep(ctx, s, start, units); err != nil {
		return nil, err
	}
	if found, err = of.read(ctx, s, s.allowances, start); err != nil {
		return nil, err
	}
	high, err := of.highKeys(ctx, s, start)
	if err != nil {
		return nil, err
	}
	if _, all := high[Key{}]; all || s.countedBefore(found) || unitsIn(found, start) > r.capacity/allowancesPart {
		return none, of.keep(ctx, s, start, 0)
	}
	return &allowance{start: start, end: end, units: units, row: s.row, high: high, spent: new(spent)}, nil
}

// keep stores an allowance of units.
func (of *standings) keep(ctx context.Context, s *standing, start Instant, units int64) error {
	count := s.countOf(start, 0, units)
	count.Row, count.Limit = s.row, s.made()
	s.stamp = max(s.stamp+1, of.opts.Now().UnixMicro()) // of two tries the later one stands, whatever the clock did
	return of.put(ctx, s, s.allowances[0], count, s.stamp)
}

// made names the limit that allowances are made for.
func (s *standing) made() LimitID { return LimitID(strconv.FormatInt(s.rule.capacity, 10)) }

// countedBefore reports whether any of found is of another limit: by that, other keys were
// noted.
func (s *standing) countedBefore(found []Count) bool {
	return slices.ContainsFunc(found, func(c Count) bool { return c.Limit != s.made() })
}

// look finds out how many instances share at now, in the window that begins at start.
func (of *standings) look(ctx context.Context, s *standing, start, now Instant) {
	if now.Sub(s.looked) < allowanceLook {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, of.opts.StoreTimeout)
	defer cancel()
	if found, err := of.read(ctx, s, s.allowances, start); err == nil {
		s.looked = now
		s.instances.Store(s.sharing(found, start))
	}
}

// sharing returns how many instances have an allowance in the window that begins at start,
// this one included.
func (s *standing) sharing(found []Count, start Instant) int64 {
	instances := int64(1)
	for _, c := range found {
		if c.Start == start && c.Row != s.row && c.Units > 0 {
			instances++
		}
	}
	return instances
}

// share returns how many units this process counts ahead of each key in the window that
// begins at start, beside found.
func (of *standings) share(s *standing, found []Count, start Instant) int64 {
	others := slices.DeleteFunc(slices.Clone(found), func(c Count) bool { return c.Row == s.row })
	if s.wary || s.countedBefore(others) {
		return 0
	}
	bounds, r, instances := leaseBoundsOf(of.opts), &s.rule, s.sharing(found, start)
	s.instances.Store(instances)
	all := r.capacity / allowancesPart
	return min(r.capacity/bounds.early, all/(bounds.spread*instances), all-unitsIn(others, start), maxAllowance)
}

// shareOf returns which part of a key's room one process may take ahead, and the least room
// for that, where they are share and least with many instances: with few that are known,
// they leave half of it to each other.
func (s *standing) shareOf(share, least int64) (fewer, room int64) {
	if n := s.instances.Load(); n > 0 && 2*n < share {
		fewer = max(2*n, fewestShares)
		return fewer, least * fewer / share
	}
	return share, least
}

// unitsIn returns the sum of counts in the window that begins at start.
func unitsIn(counts []Count, start Instant) (units int64) {
	for _, c := range counts {
		if c.Start == start {
			units = addSaturating(units, c.Units)
		}
	}
	return units
}

// highKeys returns the keys that were noted in the window before the one that begins at
// start, in that one, or later.
func (of *standings) highKeys(ctx context.Context, s *standing, start Instant) (map[Key]struct{}, error) {
	found, err := of.read(ctx, s, s.high, start)
	if err != nil {
		return nil, err
	}
	high := make(map[Key]struct{}, len(found))
	for _, c := range found {
		var key Key
		if n, err := hex.Decode(key.sum[:], []byte(c.Limit)); err != nil || n != KeySize {
			return nil, fmt.Errorf("%q is no key", c.Limit)
		}
		high[key] = struct{}{}
	}
	return high, nil
}

// put stores count under key.
func (of *standings) put(ctx context.Context, s *standing, key Key, count Count, stamp int64) error {
	now := InstantOf(of.opts.Now())
	return of.store.Write(ctx, &Write{
		Key: key, Level: s.level.Write, Tally: true, Span: s.span,
		Put: []Tally{{Count: count, Stamp: stamp, TTL: of.opts.tallyTTL(&count, now)}},
	})
}

// read returns what is under keys at now.
func (of *standings) read(ctx context.Context, s *standing, keys []Key, now Instant) (found []Count, err error) {
	for _, key := range keys {
		state, err := of.store.Read(ctx, &Query{Key: key, Level: s.level.Read, Tally: true, Span: s.span, ExpireAfter: now})
		if err != nil {
			return nil, err
		}
		found = append(found, state.Counts...)
	}
	return found, nil
}

// spent is how much of an allowance was handed out of each key, or a little more: two bytes
// in one line of memory stand for a key and all others that fall on them.
type spent struct {
	locks [spentLocks]sync.Mutex
	lines [spentLines][64]uint8
}

const (
	spentLines, spentLocks = 1 << 16, 64 // 4 MiB
	allSpent               = 255
)

// add adds cost, if no more than most is spent of key with it, and returns what was before.
func (s *spent) add(key Key, cost, most int64) (before int64, ok bool) {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	a, b := &s.lines[line][i], &s.lines[line][j]
	before = int64(min(*a, *b))
	if before+cost > most {
		return before, false
	}
	*a, *b = uint8(min(int64(*a)+cost, allSpent)), uint8(min(int64(*b)+cost, allSpent))
	return before, true
}

// end has nothing more spent of key, and returns how much was.
func (s *spent) end(key Key) int64 {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	a, b := &s.lines[line][i], &s.lines[line][j]
	before := int64(min(*a, *b))
	*a, *b = allSpent, allSpent
	return before
}

// of returns how much was spent of key.
func (s *spent) of(key Key) int64 {
	line, i, j := s.place(key)
	lock := &s.locks[line%spentLocks]
	lock.Lock()
	defer lock.Unlock()
	return int64(min(s.lines[line][i], s.lines[line][j]))
}

// place returns where key's two bytes are.
func (s *spent) place(key Key) (line, i, j int) {
	line = (int(key.sum[8])<<8 | int(key.sum[9])) % spentLines
	i, j = int(key.sum[10]%64), int(key.sum[11]%63)
	if j >= i {
		j++
	}
	return line, i, j
}
