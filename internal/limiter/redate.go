package limiter

import "slices"

// A clock that was set back leaves state behind that is dated later than it says, and so does a
// file that a clock wrote which was ahead. Under a store that holds keys still there is one
// clock, so the later date is wrong: the engine dates such state as of now. Until then it
// counts, so nothing is admitted that it denies, and it counts for no longer than a window
// from now on.

// Redate dates e as of now, if it is dated later. A hold lasts as long as it would have.
func (e *Event) Redate(now Instant) {
	if e.At <= now {
		return
	}
	if e.Ends != 0 {
		e.Ends -= e.At - now
	}
	e.At = now
}

// isAhead reports whether anything that p counts in s, whose cell is open, is dated later than
// now.
func (p *plan) isAhead(s *State, now Instant) bool {
	if s.Reset > now {
		return true
	}
	for i := range s.Logs {
		if events := s.Logs[i].Events; len(events) > 0 && events[len(events)-1].At > now {
			return true
		}
	}
	for i := range s.Counts {
		if c := &s.Counts[i]; c.Start > now && c.Units != 0 && p.ruleOf(c.Limit) != nil {
			return true
		}
	}
	for i := range s.levels {
		if b := &s.levels[i]; b.at > now && p.ruleOf(b.limit) != nil {
			return true
		}
	}
	return false
}

// ruleOf returns p's rule with this id, nil if it has none.
func (p *plan) ruleOf(id LimitID) *rule {
	for i := range p.rules {
		if p.rules[i].id == id {
			return &p.rules[i]
		}
	}
	return nil
}

// redate dates as of now what s, which was read for p, has that is dated later, and has w do the
// same in the store. It returns the instant to decide at: at, unless it did so. The clock is read
// again, as what a call beside this one has just dated is no later than that.
func (x *exclusive) redate(p *plan, s *State, at Instant, w *Write) Instant {
	if !p.isAhead(s, at) {
		return at
	}
	now := x.opts.now()
	if !p.isAhead(s, now) {
		return at
	}
	w.Present = now
	s.Reset = min(s.Reset, now-1)
	for i := range s.Logs {
		s.Logs[i].redate(now)
	}
	w.Add = p.redateCounts(s, now)
	for i := range s.levels {
		if b := &s.levels[i]; p.ruleOf(b.limit) != nil {
			b.at = min(b.at, now)
		}
	}
	if p.cell {
		cell := p.shut(nil, s, &chain{}, x.ids.next(now), now, x.opts)
		w.Cell = &cell
	}
	return now
}

// redate dates events that are later than now as of now. It never changes what is in Events
// already.
func (l *Log) redate(now Instant) {
	n := len(l.after(now).Events)
	if n == 0 {
		return
	}
	l.Events = slices.Clone(l.Events)
	for i := len(l.Events) - n; i < len(l.Events); i++ {
		l.Events[i].Redate(now)
	}
}

// redateCounts moves what later windows than now's hold into now's, and returns what that adds to
// the counters and takes from them.
func (p *plan) redateCounts(s *State, now Instant) (moved []Count) {
	for i := range s.Counts {
		s.Counts[i].Epoch = min(s.Counts[i].Epoch, now-1)
		c := s.Counts[i]
		r := p.ruleOf(c.Limit)
		if c.Start <= now || c.Units == 0 || r == nil {
			continue
		}
		to := r.countOf(c.Epoch, now, c.Units)
		c.Units = -c.Units
		moved = append(moved, c, to)
	}
	for _, c := range moved {
		s.add(c)
	}
	return moved
}
