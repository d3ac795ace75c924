package denied

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Denials remember what was counted for keys that were over their limit, so that
// whoever tries again and again is denied without asking the store, for as long as
// what was counted then leaves no room.
//
// What is remembered can only be too much, which errs on the side of denying: units
// that another instance took back, or gave back by a refund or a reset. The latter two
// are news, which end the memory. The former are young: a denial that rests on units
// that may yet be taken back is remembered for a store timeout at most. And it can be
// too little: what was recorded since, whatever the limit, on other instances. That
// changes no verdict, but what an answer tells of other limits and of waits, which is
// why nothing is remembered longer than MaxDenialAge.
//
// Nothing of what serial decides is remembered, which is exact at any moment.
type Denials struct {
	set     *demand.Settings
	doubted func(store.Key) bool

	mu         sync.Mutex
	young, old map[store.Key]*denial
	events     int                 // in young
	forgotten  [denialMarks]uint64 // how many times something was, by the first bits of its key
}

// denial is what was counted for a key. It does not change once it is remembered.
type denial struct {
	base  *demand.Plan
	state store.State
	made  store.Instant
	until store.Instant
}

// Bounds of each of the two generations of what is remembered; beyond, the older one is
// forgotten.
const (
	maxDenials      = 1 << 16 // keys, of 300 bytes and more: 20 MiB
	maxDenialEvents = 1 << 19 // of 40 bytes: 20 MiB
)

// denialMarks is how many classes of keys there are, a power of two: what is forgotten
// prevents that a read which is under way for a key of the same class is remembered.
const denialMarks = 1 << 10

// MaxDenialAge is how long a denial is remembered at most: who tries again each second
// costs a tenth of the reads, and an operator who looks at a caller sees the state of
// some seconds ago.
const MaxDenialAge = 10 * time.Second

// UnsettledPart is the part of the store timeout for which a denial is remembered that
// other instances' units in flight may have caused: they are gone after a few round trips.
const UnsettledPart = 10

// New returns Denials that remember nothing yet. doubted reports whether a denial of a key may be owed to
// units that are yet to be committed or aborted; nil: none is.
func New(set *demand.Settings, doubted func(store.Key) bool) *Denials {
	return &Denials{set: set, doubted: doubted}
}

// Answer fills in decision on a request of t at now, and reports true, if what is
// remembered of its key leaves no room for it.
func (d *Denials) Answer(decision *count.Decision, t *demand.Target, cost int64, now store.Instant) bool {
	memory := d.of(t, now)
	return memory != nil && memory.until > now && memory.refuse(decision, t.Plan, cost, now)
}

// AnswerAlone is answer while the store does not answer: for as long as what is remembered
// leaves no room.
func (d *Denials) AnswerAlone(decision *count.Decision, t *demand.Target, cost int64, now store.Instant) bool {
	memory := d.of(t, now)
	return memory != nil && memory.refuse(decision, t.Plan, cost, now)
}

// of returns what is remembered of t's key at now; nil for nothing.
func (d *Denials) of(t *demand.Target, now store.Instant) *denial {
	d.mu.Lock()
	memory, ok := d.young[t.Key]
	if !ok {
		memory, ok = d.old[t.Key]
	}
	d.mu.Unlock()
	if !ok || memory.base != t.Plan.Base || d.set.Timing.IsSetBack(memory.made, now) {
		return nil
	}
	return memory
}

// refuse denies cost at now, and reports true, if d leaves no room under p: calls for one key may have different limits.
func (d *denial) refuse(decision *count.Decision, p *demand.Plan, cost int64, now store.Instant) bool {
	return p.Refuse(decision, &d.state, cost, max(now, d.state.Reset+1), now)
}

// Since marks the time before a read of key that may be remembered.
func (d *Denials) Since(key store.Key) (mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forgotten[key.Prefix()%denialMarks]
}

// Put remembers state, which was read for t after mark and left no room; others say
// whether units of other instances in it may yet be taken back, and own that all sums
// in it are this process's, and stay. It keeps nothing of state itself.
func (d *Denials) Put(t *demand.Target, state *store.State, others, own bool, now store.Instant, mark uint64) {
	if t.Plan.Count == policy.CountAll || !t.Plan.Full(state, max(now, state.Reset+1)) {
		return
	}
	until := d.until(t, state, own, now)
	if others {
		until = now.Add(d.set.StoreTimeout / UnsettledPart)
	}
	d.keep(t, state, now, until, mark)
}

// KeepFull remembers state, which was found at now for t after mark, if it leaves no room and the
// policy goes by what this instance knows while the store does not answer. Nobody is denied by it
// as long as the store does. A bucket beside other limits has a key that no news tell of.
func (d *Denials) KeepFull(t *demand.Target, state *store.State, now store.Instant, mark uint64) {
	beside := t.Plan.Cell && t.Plan.Places != nil
	if t.Plan.OnStoreError == policy.OnStoreErrorLocal && !beside && t.Plan.Full(state, now) {
		d.keep(t, state, now, now, mark)
	}
}

// keep remembers state until an instant, and longer for when the store does not answer.
func (d *Denials) keep(t *demand.Target, state *store.State, now, until store.Instant, mark uint64) {
	if d.doubted != nil && d.doubted(t.Key) {
		return
	}
	memory := &denial{base: t.Plan.Base, state: state.Counted(), made: now, until: until}
	memory.state.Levels, memory.state.Conversions = slices.Clone(state.Levels), slices.Clone(state.Conversions)
	events := 0
	for i := range state.Logs {
		memory.state.Logs = append(memory.state.Logs, store.Log{Events: slices.Clone(state.Logs[i].Events)})
		events += len(state.Logs[i].Events)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgotten[t.Key.Prefix()%denialMarks] != mark {
		return
	}
	if d.young == nil || len(d.young) >= maxDenials || d.events >= maxDenialEvents {
		d.old, d.young, d.events = d.young, make(map[store.Key]*denial), 0
	}
	d.young[t.Key] = memory
	d.events += events
}

// until returns how long a denial of t is remembered that rests on state, of which
// nobody's units in flight are known.
func (d *Denials) until(t *demand.Target, state *store.State, own bool, now store.Instant) store.Instant {
	if !d.set.News || len(t.Old) > 0 || !d.settled(t.Plan, state, own, now) {
		return now.Add(d.set.StoreTimeout)
	}
	return now.Add(MaxDenialAge)
}

// settled reports whether nobody will take back any of state's units any more. No
// counter tells how old its units are, nor do others' running totals.
func (d *Denials) settled(p *demand.Plan, state *store.State, own bool, now store.Instant) bool {
	bound := now.Add(-2*d.set.StoreTimeout - 2*d.set.ClockTolerance)
	for i := range state.Logs {
		if events := state.Logs[i].Events; len(events) > 0 && events[len(events)-1].At > bound {
			return false
		}
	}
	return !p.Counters || own
}

// Forget ends what is remembered of key, and of what is being read now.
func (d *Denials) Forget(key store.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgotten[key.Prefix()%denialMarks]++
	delete(d.young, key)
	delete(d.old, key)
}

// Told are denials that owners told this instance, so that who tries again and again is denied where
// it asks, for as long as the owner would tell the same.
//
// As with denials, what is remembered can only be too much: units that were given back since by a
// refund or a reset. These are news, which end the memory, and nothing is remembered longer than
// MaxDenialAge. It is a layer that costs no promise: nothing is admitted by it.
type Told struct {
	Opts    *demand.Settings
	full    bounded.Recent[*toldDenial]
	Changes Changes
}

// toldDenial is what an owner told of a key without room. It does not change.
type toldDenial struct {
	changes  uint64 // that were noted before the owner was asked
	plan     *demand.Plan
	cost     int64
	verdicts []count.Verdict
	at       time.Time // when it was told
	until    time.Time // when it may no longer be so
}

// Answer decides c, and reports true, if what an owner told does.
func (h *Told) Answer(c *demand.Charge) bool {
	if c.Op == count.OpRecord {
		return false
	}
	d, ok := h.full.Get(c.Key)
	if !ok || d.plan != c.Plan || d.cost != c.Cost || d.changes != h.Changes.Of(&c.Key) {
		return false
	}
	now := time.Now()
	if !now.Before(d.until) {
		return false
	}
	passed := now.Sub(d.at)
	for i, limits := 0, c.Plan.Begin(&c.Decision); i < len(limits); i++ {
		v := d.verdicts[i]
		v.ResetAfter = max(0, v.ResetAfter-passed)
		if v.RetryAfter != count.Never {
			v.RetryAfter = max(0, v.RetryAfter-passed)
		}
		limits[i].Verdict = v
	}
	c.Decision.Conclude()
	c.Decision.WouldAllow, c.Decision.Allowed = false, c.Plan.Mode != policy.ModeEnforce
	c.Decision.Remembered, c.Decision.Recorded = true, count.RecordedNo
	return true
}

// Put remembers a for c, which was asked at that time, after so many changes, and is answered now.
func (h *Told) Put(c *demand.Charge, a *owner.Answer, asked time.Time, changes uint64) {
	steady := min(a.Steady, MaxDenialAge)
	if !h.Opts.News {
		steady = min(steady, h.Opts.StoreTimeout)
	}
	if steady <= 0 || a.WouldAllow || c.Op == count.OpRecord || c.Plan.Count == policy.CountAll || len(c.Old) > 0 {
		return
	}
	h.full.Put(c.Key, &toldDenial{
		changes: changes, plan: c.Plan, cost: c.Cost, verdicts: a.Verdicts, at: time.Now(), until: asked.Add(steady),
	})
}

// Changes is how often keys changed, each counted together with some others.
type Changes [changeMarks]atomic.Uint64

// changeMarks is enough that few of the keys that are full share one with a key that is not.
const changeMarks = 1 << 12

// Of returns how often key, or one that is counted with it, has changed.
func (c *Changes) Of(key *store.Key) uint64 { return c[key.Prefix()%changeMarks].Load() }

// Note notes a change of key.
func (c *Changes) Note(key *store.Key) { c[key.Prefix()%changeMarks].Add(1) }

// Lately knows which keys changed a moment ago, of those that changed last.
type Lately struct{ at bounded.Recent[time.Time] }

// Note notes a change of key.
func (l *Lately) Note(key store.Key) { l.at.Put(key, time.Now()) }

// Within reports whether key changed within d.
func (l *Lately) Within(key store.Key, d time.Duration) bool {
	at, ok := l.at.Get(key)
	return ok && time.Since(at) < d
}
