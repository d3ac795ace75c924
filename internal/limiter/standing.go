package limiter

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Under LeasesStanding an instance counts a few units of each window ahead of all keys of a
// policy at once: its allowance, which is one row for all of them. By it callers are admitted
// from memory of whom nothing was ever read. standinglog.go has what is different over logs.
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
	// allowancesPart is the part of a limit that all allowances of a window have together, over
	// a log rounded up where that fits: those of two windows in a row fit beside a key that is
	// not high.
	allowancesPart = 4
	// loneAllowance is what an instance has that is alone over a log of a small limit, if
	// something is left for one that starts next.
	loneAllowance = 2
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
	// allowanceIdle is for how long after the last request for one allowances are made.
	allowanceIdle = time.Minute
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

	inMemory bool                    // of a plan that is decided in memory: what is handed out is counted there
	others   atomic.Pointer[[]Count] // then: allowances of other processes, as they were read last; nil: never

	wary bool // each key is high from its first unit on: of one key with limits of its own, or of small limits

	wanted    atomic.Int64                 // the Instant when an allowance was last asked for, to a tick
	live      atomic.Pointer[[]*allowance] // of this window and the next
	known     recent[highKey]              // of high keys that this process has noted
	over      atomic.Bool                  // there is no allowance, or no more: of a plan that is not in force for all keys
	instances atomic.Int64                 // that had an allowance when this process made its last one; 0: nobody looked
	alone     atomic.Bool                  // it found no other's, of no window that matters, when it looked last
	row       EventID                      // of this process's allowances; zero: none was made yet
	stamp     int64                        // of the latest that was stored
	looked    Instant                      // when it was looked how many instances share

	base  *standing // of an override: what the policy has of allowances, which it has none of itself; nil: of a policy
	since Instant   // of an override: who hears news hands nothing out of its key in windows from here on; 0: of a policy

	mu    sync.Mutex // of what is below, and of changes of live
	ended Instant    // the start of the latest window of which the allowance was forgotten
	notes int64      // of high keys in the window that begins at all.start
	all   highKey    // where all keys are; its allowances are nil while they are not
}

// allowance is what this process may hand out of each key in a window.
type allowance struct {
	start, end Instant
	made       Instant // when, by this instance's clock
	stored     Instant // since when others can read of it, by the same
	units      int64
	row        EventID
	high       map[Key]struct{} // keys that it is not for
	spent      *spent           // of a window's; nil: of a log's, or of no units
	handed     *handed          // of a log's; nil: of a window's
	pending    bool             // it is being made, and has no units yet
}

// newStanding returns what p has of allowances, in a store that holds keys still or in one
// that can't; nil if it has none.
func newStanding(p *plan, o *Options, still bool) *standing {
	if p.Leases != LeasesStanding || still {
		return nil
	}
	s := &standing{rule: p.rules[0], level: p.Consistency, span: p.span, inMemory: p.behind}
	if s.inLog() {
		s.beginInLog(p)
	} else {
		s.wary = s.rule.capacity < leaseBoundsOf(o).least
	}
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
	if a == nil || cost > a.units || now < a.start.Add(s.rule.slack) || s.over.Load() {
		return false
	}
	if _, high := a.high[t.key]; high || c.standings.exempt(t.key) {
		return false
	}
	state, _ := c.standings.states.Get().(*State)
	defer c.standings.states.Put(state)
	id := c.ids.next(now)
	if !c.handOut(a, t, state, id, cost, now) {
		return false
	}
	t.plan.decide(d, state, op, id, now, cost)
	if d.Recorded != RecordedYes { // this process knows that there is no room
		return false
	}
	d.Leased = true
	d.entry = entry{id: id, at: now, epoch: state.Reset, cost: cost}
	return true
}

// handOut takes cost out of a for t at now, if enough is left, and makes state, whatever it
// was, what this process knows of t without that.
func (c *counted) handOut(a *allowance, t *target, state *State, id EventID, cost int64, now Instant) bool {
	s := t.plan.standing
	state.Reset, _ = c.resets.get(t.key)
	state.Logs, state.Counts = state.Logs[:0], state.Counts[:0]
	if s.inLog() {
		return s.handOutOfLog(a, t.key, state, id, cost, now)
	}
	before, ok := a.spent.add(t.key, cost, a.units)
	if ok {
		state.Counts = append(c.tallies.appendKnown(state.Counts, t.key), s.countOf(now, state.Reset, before))
	}
	return ok
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
	for _, a := range s.current() {
		if a.start <= now && now < a.end {
			return a
		}
	}
	return nil
}

// whole returns s or, of an override, what the policy has of allowances.
func (s *standing) whole() *standing {
	if s.base != nil {
		return s.base
	}
	return s
}

// current returns the allowances that there are, those that are over and matter among them.
func (s *standing) current() []*allowance {
	if live := s.whole().live.Load(); live != nil {
		return *live
	}
	return nil
}

// addAllowances adds to state, which was read for t and is to be decided at now, what
// counts of allowances: all of them if the key is high, of which others learn before.
func (c *counted) addAllowances(ctx context.Context, t *target, own *units, state *State) error {
	s := t.plan.standing
	if s == nil {
		return nil
	}
	noted, high := highKey{}, s.isHigh(state, own.now)
	if own.high = high; high {
		start, _ := s.rule.windowAt(own.now)
		var ok bool
		if noted, ok = s.noted(t.key, start); !ok {
			var err error
			if noted, err = c.note(ctx, s, t, own.now, noted.unspent); err != nil {
				return err
			}
		}
	}
	switch {
	case s.inLog():
		s.end(t.key, own.now)
		own.beside = s.beside(t.key, noted)
	case high:
		state.addUnder(noted.allowances)
	default:
		s.addSpent(t.key, state, own.now)
	}
	return nil
}

// addKnownAllowances is addAllowances for a state by which nothing is admitted: it adds what
// is known, and asks nobody.
func (c *counted) addKnownAllowances(t *target, state *State, now Instant) {
	s := t.plan.standing
	if s == nil {
		return
	}
	start, _ := s.rule.windowAt(now)
	noted, ok := s.noted(t.key, start)
	high := ok && s.isHigh(state, now)
	switch {
	case s.inLog() && high:
		s.addEvents(state, s.beside(t.key, noted))
	case s.inLog():
		s.addEvents(state, s.beside(t.key, highKey{}))
	case high:
		state.addUnder(noted.allowances)
	default:
		s.addSpent(t.key, state, now)
	}
}

// addSpent adds to state what this process has handed out of its own allowance for key.
func (s *standing) addSpent(key Key, state *State, now Instant) {
	if a := s.at(now); a != nil && a.units > 0 {
		state.addUnder([]Count{s.countOf(now, 0, min(a.units, a.spent.of(key)))})
	}
}

// addUnder adds counts to s, which no reset forgets.
func (s *State) addUnder(counts []Count) {
	for _, c := range counts {
		c.Epoch = s.Reset
		s.Counts = append(s.Counts, c)
	}
}
