package limiter

import (
	"cmp"
	"slices"
	"time"
)

// Under LeasesStanding a process takes units of a log ahead as well, of a caller who came a
// moment ago: a row for each, written with the rows of those who ask. An event has an instant,
// and who will come is not there yet; so these rows are dated by as much ahead as they may be
// kept for, rowsAheadBy. They are handed out before that, never after it.
//
// So no row leaves a window before its event does, which is all that counting after writing
// needs. For others it leaves later, by rowsAheadBy at most. This process knows when it handed
// each of them out, and puts that in the place of the date.
//
// Their ids tell them from other events, so that a reset forgets those that were written
// before it, whatever they are dated.
const (
	// rowsAheadBy is how far ahead rows are dated. It is a part of what is stored: all
	// instances have to go by the same.
	rowsAheadBy = 30 * time.Second
	// rowsWindows is how many times as long windows of such logs are, at least.
	rowsWindows = 10
	// rowsLeave is the part of a limit, at its end, of which nothing is taken ahead.
	rowsLeave = 4
	// maxRowsAhead is how many rows are written ahead at a time.
	maxRowsAhead = 4
	// maxRowsLimit is the largest limit of such logs: of longer ones too much would be read.
	maxRowsLimit = 64
	// maxOwnRows bounds what is known of a key's rows, of 24 bytes; beyond, the oldest count as they are dated.
	maxOwnRows = 16
)

// ownRow is a row that this process counted ahead, and when it handed it out; 0: it did not,
// and never will.
type ownRow struct {
	id EventID
	at Instant
}

// datedAhead returns by how much rows under p are dated ahead; 0 if none are counted ahead.
func (p *plan) datedAhead(o *Options, still bool) time.Duration {
	if still || p.Leases != LeasesStanding || p.Count != CountAdmitted || p.behind || p.cell || p.counters || len(p.rules) != 1 {
		return 0
	}
	ahead := leaseBoundsOf(o).ahead
	if l := &p.Limits[0]; l.Window < rowsWindows*ahead || l.Limit > maxRowsLimit {
		return 0
	}
	return ahead
}

// mostRows returns how many rows of others of log decide: a limit's worth, and where some are
// dated ahead as many that are not what their dates say.
func (p *plan) mostRows(log *logPlan) int {
	if p.ahead > 0 {
		return 2 * log.limit
	}
	return log.limit
}

// rowsAhead returns how many rows own counts ahead of t's key, of which that is known at now:
// none, unless it was asked for a moment ago.
func (l *leases) rowsAhead(t *target, known demand, own *units, now Instant) int64 {
	p := t.plan
	if r := own.batch[0]; r.id != (EventID{}) || r.hold > 0 || r.alone || p.standing.base != nil {
		return 0
	}
	room := known.room
	events, _ := p.standing.handedOut(t.key)
	if known.ends <= now {
		if !slices.ContainsFunc(events, func(e Event) bool { return e.At > now.Add(-p.ahead) }) {
			return 0
		}
		room = p.rules[0].capacity - SumOf(events)
	}
	room -= sumOf(own.batch)
	if p.standing.isAlone() {
		return p.rowsAlone(room, SumOf(events))
	}
	if last := (p.rules[0].capacity + rowsLeave - 1) / rowsLeave; room < max(2, last) {
		return 0
	}
	share := l.bounds(p).share
	return min(maxRowsAhead, (room+share-1)/share)
}

// rowsAlone returns how many rows an instance that is alone counts ahead of so much room of a
// key, of which so much was handed out beside rows: as many as there are, but at first no more
// than leave the key as it is, not high.
func (p *plan) rowsAlone(room, handed int64) int64 {
	limit := p.rules[0].capacity
	rows := limit - room - handed
	if low := limit/highPart - 1 - rows; low > 0 {
		room = min(low, room)
	}
	return max(0, min(maxRowsAhead, room))
}

// rowsDated returns the rows that own counts ahead under p.
func (p *plan) rowsDated(ids *eventIDs, own *units) (rows []Event) {
	if p.ahead == 0 {
		return nil
	}
	at := own.now.Add(p.ahead)
	for range own.ahead {
		rows = append(rows, Event{ID: ids.next(at).ahead(), At: at, Cost: 1})
	}
	return rows
}

// layOut makes h a lease of the first of own's rows, beside state: until they are dated.
func (h *lease) layOut(own *units, state *State, n int64) {
	for _, e := range own.rows[:n] {
		h.rows = append(h.rows, e.ID)
	}
	for i := range state.Logs {
		h.state.Logs = append(h.state.Logs, Log{Events: slices.Clone(state.Logs[i].Events)})
	}
	h.until, h.back = h.ends, h.ends
}

// giveRowsBack removes the rows that are left of held, which was removed; nil: there are none.
func (l *leases) giveRowsBack(held *lease) {
	if held == nil || held.target.plan.ahead == 0 {
		return
	}
	held.mu.Lock()
	ids := held.rows
	held.rows, held.left = nil, 0
	held.mu.Unlock()
	l.drop(&held.target, ids)
}

// retract removes rows that were counted ahead for t, and are not handed out.
func (l *leases) retract(t *target, rows []Event) {
	ids := make([]EventID, len(rows))
	for i := range rows {
		ids[i] = rows[i].ID
	}
	l.drop(t, ids)
}

// drop removes rows of t's log, which this process does not count from now on.
func (l *leases) drop(t *target, ids []EventID) {
	if len(ids) == 0 {
		return
	}
	rows := make([]ownRow, len(ids))
	for i, id := range ids {
		rows[i].id = id
	}
	l.know(t, rows...)
	l.erase(t, ids)
}

// know remembers what became of rows of t, for as long as they count.
func (l *leases) know(t *target, rows ...ownRow) {
	oldest := rows[0].id.Instant() - t.plan.logs[0].counts
	l.rows.change(t.key, func(known []ownRow) []ownRow {
		kept := slices.DeleteFunc(slices.Concat(known, rows), func(r ownRow) bool { return r.id.Instant() <= oldest })
		return kept[max(0, len(kept)-maxOwnRows):]
	})
}

// redate makes of s, which is what q found of t, what counts: rows that were counted ahead
// count when this process handed them out, if it did, and not at all if nobody will; nor if
// they were written before a reset. Where there may be more rows than were read, all count as
// they are dated, which can't be too little. If nothing is admitted by s, it is without what is
// left of a lease as well; who admits by it has ended theirs before.
func (l *leases) redate(t *target, s *State, q *Query, readOnly bool) {
	st := t.plan.standing
	if st == nil || !st.inLog() || len(s.Logs) == 0 {
		return
	}
	log := &s.Logs[st.rule.log]
	if len(log.Events) >= q.Logs[st.rule.log].Max || !slices.ContainsFunc(log.Events, func(e Event) bool { return e.ID.isAhead() }) {
		return
	}
	ahead := leaseBoundsOf(l.opts).ahead
	known, _ := l.rows.get(t.key)
	if readOnly {
		for _, id := range l.left(t.key) {
			known = append(slices.Clip(known), ownRow{id: id})
		}
	}
	events := make([]Event, 0, len(log.Events))
	for _, e := range log.Events {
		if e.ID.isAhead() {
			if e.At.Add(-ahead) <= s.Reset {
				continue
			}
			if i := slices.IndexFunc(known, func(r ownRow) bool { return r.id == e.ID }); i >= 0 {
				if e.At = known[i].at; e.At == 0 {
					continue
				}
			}
		}
		events = append(events, e)
	}
	slices.SortStableFunc(events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	*log = Log{Events: events}
}

// left returns what is left of the lease of key.
func (l *leases) left(key Key) []EventID {
	s := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.live[key]
	if held == nil {
		return nil
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	return held.rows
}
