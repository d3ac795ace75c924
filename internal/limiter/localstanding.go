package limiter

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
)

// Under GuaranteeLocal with LeasesStanding this process writes nothing behind of a caller of
// whom no more is used than its allowance: that is counted already, in one row for all
// callers. What it handed out so is in its memory alone, under ids that tell. Others read all
// allowances every sync interval, and count them whole beside a key of which half is used.

// isAhead reports whether id is of units that were counted ahead: under GuaranteeLocal by an
// allowance, and no store has them; else by a lease over a log.
func (id EventID) isAhead() bool { return id[8]&aheadSequence != 0 }

// ahead returns id as that of such units.
func (id EventID) ahead() EventID {
	id[8] |= aheadSequence
	return id
}

// besideMemory adds to s, what memory holds of c's key at now, what counts of other
// processes' allowances, and notes whether c's units are within this one's.
func (b *behind) besideMemory(c *charge, s *State, now Instant) {
	c.ahead = false
	p := c.plan.mirrors
	if p == nil || p.standing == nil {
		return
	}
	st, r := p.standing, &p.rules[0]
	own := b.counted.standings.at(st.whole(), now)
	used := addSaturating(r.algorithm.used(r, s, now), c.cost)
	switch {
	case st.wary || used >= r.capacity/highPart:
		st.addOthers(s)
	case own != nil && own.isKnown(b.opts, now) && !b.mayBeReset(p) && c.id == (EventID{}):
		c.ahead = used <= own.units
	}
}

// isKnown reports whether all who count in memory have surely read of a, if the store answers.
func (a *allowance) isKnown(o *Options, now Instant) bool {
	return now >= a.stored.Add(o.SyncInterval+o.StoreTimeout)
}

// addOthers adds to state, that of a high key, what others may have handed out of their
// allowances.
func (s *standing) addOthers(state *State) {
	found := s.whole().others.Load()
	if found == nil {
		return
	}
	others := s.before(slices.Clone(*found))
	if !s.inLog() {
		state.addUnder(s.sumsOf(others))
		return
	}
	events := make([]Event, len(others))
	for i, c := range others {
		events[i] = s.eventOf(c)
	}
	s.addEvents(state, events)
}

// watch reads what allowances others have, every sync interval, of the policies that are
// asked for, until ctx ends.
func (b *behind) watch(ctx context.Context) {
	tick := time.NewTicker(b.opts.SyncInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if now, err := b.opts.instant(); err == nil {
				b.counted.standings.readOthers(ctx, now)
			}
		case <-ctx.Done():
			return
		}
	}
}

// readOthers reads what allowances others have at now. Where the store fails, what was read
// before goes on counting.
func (of *standings) readOthers(ctx context.Context, now Instant) {
	ctx, cancel := context.WithTimeout(ctx, of.opts.StoreTimeout)
	defer cancel()
	asked := slices.DeleteFunc(of.inUse(now), func(s *standing) bool { return !s.inMemory })
	shareOut(carryWriters, slices.Values(asked), func(s *standing) {
		found, err := of.read(ctx, s, s.allowances, now)
		if err != nil {
			return
		}
		row := s.ownRow()
		found = slices.DeleteFunc(found, func(c Count) bool { return c.Units <= 0 || c.Row == row })
		s.others.Store(&found)
	})
}

// aheadDetails is what news of a refund tell of units that an allowance had counted: all that
// it takes to give them back, as only the process that handed them out knows of them.
type aheadDetails struct {
	Policy string  `json:"policy"`
	Limit  LimitID `json:"limit"`
	ID     string  `json:"id"` // in hexadecimal digits
	Cost   int64   `json:"cost"`
	Epoch  Instant `json:"epoch"`
}

// tellAhead returns the details of news that n, which another process handed out under p, is
// given back.
func (p *plan) tellAhead(n *entry) string {
	told := aheadDetails{Policy: p.Name, Limit: p.rules[0].id, ID: hex.EncodeToString(n.id[:]), Cost: n.cost, Epoch: n.epoch}
	details, _ := json.Marshal(&told) // strings and numbers can't fail
	return string(details)
}

// heardAhead gives back the units that c tells of, if this process handed them out.
func (e *Engine) heardAhead(ctx context.Context, c *Change) {
	var told aheadDetails
	if json.Unmarshal([]byte(c.Details), &told) != nil {
		return
	}
	sum, err := hex.DecodeString(told.ID)
	if err != nil || len(sum) != len(EventID{}) {
		return
	}
	id, p := EventID(sum), e.plans.Load().of(told.Policy)
	if p == nil || p.rules[0].id != told.Limit || id.node() != e.ids.nodeBits {
		return
	}
	e.behind.takeOut(ctx, p, c.Key, &entry{id: id, at: id.Instant(), epoch: told.Epoch, cost: told.Cost})
}

// takeOut takes what n counted for key under p out of memory. It can be repeated: units of a window
// are taken out by a row of their own, called as they are.
func (b *behind) takeOut(ctx context.Context, p *plan, key Key, n *entry) {
	q := p.local.query(key, n.at, 1, nil)
	_ = b.memory.store.Update(ctx, &q, func(_ *State, w *Write) { // there was room for what is taken out
		if !p.counters {
			w.Remove, w.Logs = []EventID{n.id}, p.logWrites
			return
		}
		less := p.rules[0].countOf(n.epoch, n.at, -n.cost)
		less.Row = n.id
		w.Put, w.Tally, w.Span = []Tally{{Count: less, Stamp: 1}}, true, p.span
	})
}
