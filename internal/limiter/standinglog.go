package limiter

import (
	"encoding/hex"
	"slices"
)

// Over a log an allowance is of a period as long as the limit's window. What this process
// handed out it knows event by event, and counts exactly; what others may have handed out
// counts, where a key is high, as if it had come at the end of their period. As a window
// meets two periods in a row at most, that is no more than two allowances of each.

// inLog reports whether s is of a log.
func (s *standing) inLog() bool { return s.rule.algorithm.memory == memoryEvents }

// beginInLog makes s one of a log: p's.
func (s *standing) beginInLog(p *plan) {
	r := &s.rule
	s.span = p.logs[r.log].span
	r.width = r.Window
	r.lasts = 2*r.Window + r.slack // an event at the end of a period counts for a window, and by other clocks for longer
}

// handOutOfLog takes an event out of a for key, if enough is left, and makes state what this
// process knows of key without it. Where it has decided by rows within a window, it no longer
// knows how many those are.
func (s *standing) handOutOfLog(a *allowance, key Key, state *State, id EventID, cost int64, now Instant) bool {
	if now <= state.Reset { // it would be forgotten
		return false
	}
	if cap(state.Logs) == 0 {
		state.Logs = make([]Log, 1)
	}
	state.Logs = state.Logs[:1]
	state.Logs[0] = Log{Events: state.Logs[0].Events[:0]}
	events, byRows := s.handedOut(key)
	s.addEvents(state, events)
	return !byRows && a.handed.add(key, id, cost, a.units)
}

// end has nothing more handed out of key by the allowances that there are, that of now among
// them though it may not be made yet: it is decided by rows from here on.
func (s *standing) end(key Key, now Instant) {
	of := s.whole()
	if of.at(now) == nil {
		start, _ := of.rule.windowAt(now)
		of.begin(start, now)
	}
	for _, a := range of.current() {
		a.handed.end(key)
	}
}

// forget forgets what this process handed out of key until an instant: a reset that began
// then does.
func (s *standing) forget(key Key, until Instant) {
	for _, a := range s.current() {
		if a.handed != nil {
			a.handed.forget(key, until)
		}
	}
}

// giveBack forgets the event called id, if this process handed it out of key, and reports
// whether it did.
func (s *standing) giveBack(key Key, id EventID) (known bool) {
	for _, a := range s.current() {
		known = a.handed != nil && a.handed.giveBack(key, id) || known
	}
	return known
}

// handedOut returns the events that this process handed out of key, and reports whether it has
// decided over key by rows since.
func (s *standing) handedOut(key Key) (events []Event, byRows bool) {
	for _, a := range s.current() {
		var ended bool
		events, ended = a.handed.appendTo(events, key)
		byRows = byRows || ended
	}
	return events, byRows
}

// beside returns the events that count of allowances beside key's rows: what this process
// handed out and, of a high key, what others may have, and this process of what it has
// forgotten since the key was noted.
func (s *standing) beside(key Key, noted highKey) []Event {
	events, _ := s.handedOut(key)
	for _, c := range noted.allowances {
		events = append(events, s.eventOf(c))
	}
	for _, c := range noted.unspent {
		if !s.remembers(c.Start) {
			events = append(events, s.eventOf(c))
		}
	}
	return events
}

// eventOf returns what counts of another instance's allowance: all of it, at the end of its
// period, which is as long as the window of the limit that it was made for.
func (s *standing) eventOf(c Count) Event {
	return Event{ID: allowanceRow, At: c.Start.Add((c.Expires.Sub(c.Start) - s.rule.slack) / 2), Cost: c.Units}
}

// othersIn returns the allowances among found that count whole, which is not nil, and those of
// this process, which knows what it handed out of them.
func (s *standing) othersIn(found []Count) (others, own []Count) {
	row := s.ownRow()
	others = []Count{}
	for _, c := range found {
		switch {
		case c.Units <= 0:
		case c.Row == row && s.remembers(c.Start):
			own = append(own, c)
		default:
			others = append(others, c)
		}
	}
	return others, own
}

// ownRow returns the row of this process's allowances; zero: it has none.
func (s *standing) ownRow() EventID {
	s = s.whole()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.row
}

// remembers reports whether this process knows what it handed out in the period that begins at
// start.
func (s *standing) remembers(start Instant) bool {
	return slices.ContainsFunc(s.current(), func(a *allowance) bool { return a.start == start })
}

// addEvents adds events to state. Of those that are dated before a reset it forgets the ones
// that came before it by any clock.
func (s *standing) addEvents(state *State, events []Event) {
	log := &state.Logs[s.rule.log]
	for _, e := range events {
		if e.At.Add(2*s.rule.slack) <= state.Reset {
			continue
		}
		e.At = max(e.At, state.Reset+1)
		log.insert(e)
	}
}

// refundDetails returns what the news of a refund tells others of n, which is given back: whoever
// handed it out is the only one to know of it. Empty where that is this process, or all is
// stored. sums says whether units of windows can be given back.
func (e *Engine) refundDetails(t *target, n *entry, sums bool) string {
	p := t.plan
	switch {
	case p.standing == nil:
		return ""
	case p.behind:
		if !n.id.isAhead() || n.id.node() == e.ids.nodeBits || !sums && p.counters {
			return ""
		}
		return p.tellAhead(n)
	case !p.standing.inLog() || p.standing.giveBack(t.key, n.id):
		return ""
	}
	return hex.EncodeToString(n.id[:])
}

// heardRefund forgets the event that c tells of, if this process handed it out.
func (e *Engine) heardRefund(c *Change) {
	id, err := hex.DecodeString(c.Details)
	if err != nil || len(id) != len(EventID{}) {
		return
	}
	for _, p := range e.plans.Load().byName {
		if p.standing != nil {
			p.standing.giveBack(c.Key, EventID(id))
		}
	}
}
