package limiter

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
)

// highKey is a key that is noted as high in a window, and the allowances that there were
// after that, without what this process had not spent of its own, and never will. Over a log
// they are without its own, which it knows event by event.
type highKey struct {
	start      Instant
	allowances []Count
	unspent    []Count // over a log: its own
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

// note notes that t's key is high in the window of now, and returns the allowances that
// there are then. Some of what is unspent may be known from another window.
func (c *counted) note(ctx context.Context, s *standing, t *target, now Instant, known []Count) (highKey, error) {
	start, end := s.rule.windowAt(now)
	until := end.Add(end.Sub(start) + s.rule.slack + t.plan.ahead) // rows ahead may be handed out that much after the end
	keys, some := append([]Key{t.key}, t.old...), s.mayNote(start)
	if !some {
		keys = make([]Key, len(s.high)) // which stands for all
	}
	for i, key := range keys {
		put := Count{
			Limit: LimitID(hex.EncodeToString(key.sum[:])), Start: start, Units: 1, Row: c.ids.next(now),
			Expires: until,
		}
		if err := c.standings.put(ctx, s, s.high[i], put, c.opts.Now().UnixMicro()); err != nil {
			return highKey{}, err
		}
	}
	found, err := c.standings.read(ctx, s, s.allowances, now)
	if err != nil {
		return highKey{}, err
	}
	found = s.before(found)
	noted := highKey{start: start}
	switch {
	case s.inLog():
		noted.allowances, noted.unspent = s.othersIn(found)
	case some:
		noted.unspent = s.unspent(t.key, found, known)
		fallthrough
	default:
		noted.allowances = s.sumsOf(append(found, negated(noted.unspent)...))
	}
	if some {
		s.known.put(t.key, noted)
		if s.base != nil { // when the override is over, the rest is not there any more
			s.base.known.put(t.key, highKey{unspent: noted.unspent})
		}
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
	for _, a := range s.current() {
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

// before returns those of found that count: under an override, of windows that had begun when
// everybody had heard of it.
func (s *standing) before(found []Count) []Count {
	if s.since == 0 {
		return found
	}
	return slices.DeleteFunc(found, func(c Count) bool { return c.Start >= s.since })
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

// highKeys returns the keys that were noted in the window before the one that begins at
// start, in that one, or later.
func (of *standings) highKeys(ctx context.Context, s *standing, start Instant) (map[Key]struct{}, error) {
	found, err := of.read(ctx, s, s.high, start)
	if err != nil {
		return nil, err
	}
	high := make(map[Key]struct{}, len(found))
	for _, c := range found {
		sum, err := hex.DecodeString(string(c.Limit))
		if err != nil || len(sum) != KeySize {
			return nil, fmt.Errorf("%q is no key", c.Limit)
		}
		high[KeyFrom([KeySize]byte(sum))] = struct{}{}
	}
	return high, nil
}
