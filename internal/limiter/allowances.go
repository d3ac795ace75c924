package limiter

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"
)

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
	if last := Instant(s.wanted.Load()); now.Sub(last) >= leaseSweep {
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
	tick := time.NewTicker(leaseBoundsOf(of.opts).sweep)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if now, err := of.opts.instant(); err == nil {
				of.makeAll(ctx, now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// makeAll makes the allowances that are missing at now, of this window and, late in it, of
// the next.
func (of *standings) makeAll(ctx context.Context, now Instant) {
	shareOut(carryWriters, slices.Values(of.inUse(now)), func(s *standing) {
		start, end := s.rule.windowAt(now)
		of.endAhead(s, now)
		of.makeOne(ctx, s, start, now)
		of.look(ctx, s, start, now)
		if part := end.Sub(start) / time.Duration(leaseBoundsOf(of.opts).part); now >= end.Add(-part) {
			of.makeOne(ctx, s, end, now)
		}
	})
}

// inUse returns what is asked for at now. What nobody asks for any more is forgotten once its
// allowances matter no more.
func (of *standings) inUse(now Instant) (asked []*standing) {
	of.mu.Lock()
	defer of.mu.Unlock()
	for s := range of.asked {
		switch idle := Instant(s.wanted.Load()).Add(allowanceIdle) < now; {
		case s.over.Load() || idle && s.prune(now):
			delete(of.asked, s)
		case !idle:
			asked = append(asked, s)
		}
	}
	return asked
}

// endAhead ends the allowances of s that were made by a clock which was set back since: their
// rows may be gone by the time that their windows come.
func (of *standings) endAhead(s *standing, now Instant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	isAhead := func(a *allowance) bool { return a.units > 0 && of.opts.isSetBack(a.made, now) }
	if live := s.current(); slices.ContainsFunc(live, isAhead) {
		left := slices.Clone(live)
		for i, a := range left {
			if isAhead(a) { // what was handed out of it counts
				left[i] = &allowance{start: a.start, end: a.end, handed: a.handed}
			}
		}
		s.live.Store(&left)
	}
}

// makeOne makes the allowance of s for the window that begins at start, unless there is one
// or may be none. If the store fails, it is tried again.
func (of *standings) makeOne(ctx context.Context, s *standing, start, now Instant) {
	begun := s.begin(start, now)
	if begun == nil || !begun.pending {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, of.opts.StoreTimeout)
	defer cancel()
	if made, err := of.make(ctx, s, start); err == nil {
		s.finish(begun, made)
	}
}

// begin returns the allowance of s for the window that begins at start, a new one of no units
// that is pending if there is none; nil if there was one that is forgotten, as a clock went
// ahead and back: nobody knows what was spent of it.
func (s *standing) begin(start, now Instant) *allowance {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.at(start); a != nil || start <= s.ended {
		return a
	}
	_, end := s.rule.windowAt(start)
	a := &allowance{start: start, end: end, pending: true}
	if s.inLog() {
		a.handed = new(handed)
	}
	live := append([]*allowance{a}, s.mattering(start, now)...)
	s.live.Store(&live)
	return a
}

// prune forgets the allowances that matter no more at now, and reports whether none is left.
func (s *standing) prune(now Instant) (empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	start, _ := s.rule.windowAt(now)
	live := s.mattering(start, now)
	if len(live) < len(s.current()) {
		s.live.Store(&live)
	}
	return len(live) == 0
}

// mattering returns the allowances that matter at now, when the latest window begins at start.
// The others are forgotten.
func (s *standing) mattering(start, now Instant) (live []*allowance) {
	for _, a := range s.current() {
		if s.matters(a, start, now) {
			live = append(live, a)
		} else {
			s.ended = max(s.ended, a.start)
		}
	}
	return live
}

// matters reports whether what was spent of a is asked for at now, when the latest window
// begins at start.
func (s *standing) matters(a *allowance, start, now Instant) bool {
	if s.inLog() {
		return a.end.Add(a.end.Sub(a.start)+s.rule.slack) > now
	}
	return a.end.Add(a.end.Sub(a.start)) >= start
}

// finish puts made in the place of begun.
func (s *standing) finish(begun, made *allowance) {
	made.handed = begun.handed
	s.mu.Lock()
	defer s.mu.Unlock()
	live := slices.Clone(s.current())
	if i := slices.Index(live, begun); i >= 0 {
		live[i] = made
		s.live.Store(&live)
	}
}

// make stores an allowance for the window that begins at start, and returns it: of no
// units if there is none.
func (of *standings) make(ctx context.Context, s *standing, start Instant) (*allowance, error) {
	r := &s.rule
	_, end := r.windowAt(start)
	none, made := &allowance{start: start, end: end}, of.opts.now()
	if s.row == (EventID{}) {
		s.mu.Lock()
		s.row = of.ids.next(start)
		s.mu.Unlock()
	}
	found, err := of.read(ctx, s, s.allowances, start)
	if err != nil {
		return nil, err
	}
	units := of.share(s, found, start)
	if units <= 0 {
		if slices.ContainsFunc(found, func(c Count) bool { return c.Start == start && c.Row == s.row && c.Units > 0 }) {
			err = of.keep(ctx, s, start, 0) // what a try that failed has stored
		}
		return none, err
	}
	if units, found, err = of.settle(ctx, s, start, units); err != nil {
		return nil, err
	}
	high, err := of.highKeys(ctx, s, start)
	if err != nil {
		return nil, err
	}
	if _, all := high[Key{}]; all || units <= 0 || s.countedBefore(found) {
		return none, of.keep(ctx, s, start, 0)
	}
	a := &allowance{start: start, end: end, made: made, stored: of.opts.now(), units: units, row: s.row, high: high}
	if !s.inLog() && !s.inMemory {
		a.spent = new(spent)
	}
	return a, nil
}

// settle stores an allowance of units, or of as many fewer as fit beside those that others
// store at the same time, and returns how many those are, and all that was found then; 0: none
// fit, and what is stored is not to be used.
func (of *standings) settle(ctx context.Context, s *standing, start Instant, units int64) (int64, []Count, error) {
	for {
		if err := of.keep(ctx, s, start, units); err != nil {
			return 0, nil, err
		}
		found, err := of.read(ctx, s, s.allowances, start)
		if err != nil || unitsIn(found, start) <= s.most() {
			return units, found, err
		}
		fewer := of.share(s, found, start)
		if fewer <= 0 || fewer >= units {
			return 0, found, nil
		}
		units = fewer
	}
}

// keep stores an allowance of units.
func (of *standings) keep(ctx context.Context, s *standing, start Instant, units int64) error {
	count := s.countOf(start, 0, units)
	count.Row, count.Limit = s.row, s.made()
	s.stamp = max(s.stamp+1, of.opts.Now().UnixMicro()) // of two tries the later one stands, whatever the clock did
	return of.put(ctx, s, s.allowances[0], count, s.stamp)
}

// made names the limit that allowances are made for. Those of windows are apart by how long
// they last, those of a log are not.
func (s *standing) made() LimitID {
	limit := strconv.FormatInt(s.rule.capacity, 10)
	if s.inLog() {
		limit += " in " + s.rule.Window.String()
	}
	return LimitID(limit)
}

// countedBefore reports whether any of found is of another limit: by that, other keys were
// noted.
func (s *standing) countedBefore(found []Count) bool {
	return slices.ContainsFunc(found, func(c Count) bool { return c.Limit != s.made() })
}

// look finds out how many instances share at now, in the window that begins at start.
func (of *standings) look(ctx context.Context, s *standing, start, now Instant) {
	if now.Sub(s.looked) < allowanceLook || s.inMemory { // that has no leases
		return
	}
	ctx, cancel := context.WithTimeout(ctx, of.opts.StoreTimeout)
	defer cancel()
	if found, err := of.read(ctx, s, s.allowances, start); err == nil {
		s.looked = now
		s.instances.Store(s.sharing(found, start))
		s.alone.Store(!s.isBeside(found))
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
	if s.wary || s.countedBefore(others) || 2*s.rule.slack > s.rule.width { // an instance would hardly come to use it
		return 0
	}
	bounds, r, instances := leaseBoundsOf(of.opts), &s.rule, s.sharing(found, start)
	s.instances.Store(instances)
	s.alone.Store(!s.isBeside(found))
	all := s.most()
	units := min(r.capacity/bounds.early, all/(bounds.spread*instances), maxAllowance)
	if s.inLog() { // most of them are small
		units = max(1, units)
		if s.isAlone() {
			units = max(loneAllowance, units)
		}
	}
	return min(units, all-unitsIn(others, start))
}

// most returns how many units all allowances of a window may have together: those of two
// windows in a row fit beside what is used of a key that is not high.
func (s *standing) most() int64 {
	limit := s.rule.capacity
	if s.inLog() && limit >= allowancesPart {
		return (limit - (limit/highPart - 1)) / 2
	}
	return limit / allowancesPart
}

// leaseShare returns which part of a key's room one process may take ahead, and the least room
// for that, where they are share and least with many instances: with few that are known,
// they leave half of it to each other.
func (s *standing) leaseShare(share, least int64) (fewer, room int64) {
	if n := s.instances.Load(); n > 0 && 2*n < share {
		fewer = max(2*n, fewestShares)
		return fewer, least * fewer / share
	}
	return share, least
}

// isAlone reports whether this instance knows of no other that has an allowance over a log, where
// another would have one beside its own.
func (s *standing) isAlone() bool {
	return s.inLog() && s.alone.Load() && s.most() > loneAllowance
}

// isBeside reports whether any of found is another instance's, of whatever window.
func (s *standing) isBeside(found []Count) bool {
	return slices.ContainsFunc(found, func(c Count) bool { return c.Row != s.row && c.Units > 0 })
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

// put stores count under key.
func (of *standings) put(ctx context.Context, s *standing, key Key, count Count, stamp int64) error {
	now := of.opts.now()
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
