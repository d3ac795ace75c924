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
	shareOut(carryWriters, slices.Values(asked), func(s *standing) {
		start, end := s.rule.windowAt(now)
		of.endAhead(s, now)
		of.makeOne(ctx, s, start)
		of.look(ctx, s, start, now)
		if part := end.Sub(start) / time.Duration(leaseBoundsOf(of.opts).part); now >= end.Add(-part) {
			of.makeOne(ctx, s, end)
		}
	})
}

// endAhead ends the allowances of s that were made by a clock which was set back since: their
// rows may be gone by the time that their windows come.
func (of *standings) endAhead(s *standing, now Instant) {
	live := s.live.Load()
	isAhead := func(a *allowance) bool { return a.units > 0 && of.opts.isSetBack(a.made, now) }
	if live == nil || !slices.ContainsFunc(*live, isAhead) {
		return
	}
	left := slices.Clone(*live)
	for i, a := range left {
		if isAhead(a) {
			left[i] = &allowance{start: a.start, end: a.end}
		}
	}
	s.live.Store(&left)
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
	none, made := &allowance{start: start, end: end}, InstantOf(of.opts.Now())
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
	return &allowance{start: start, end: end, made: made, units: units, row: s.row, high: high, spent: new(spent)}, nil
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
