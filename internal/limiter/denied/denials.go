package denied

import (
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
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
	plan  *demand.Plan
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

// keep remembers state until an instant, and longer for when the store does not answer.
func (d *Denials) keep(t *demand.Target, state *store.State, now, until store.Instant, mark uint64) {
	if d.doubted != nil && d.doubted(t.Key) {
		return
	}
	memory := &denial{plan: t.Plan, state: state.Counted(), made: now, until: until}
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

// Answer fills in decision on a request of t at now, and reports true, if what is
// remembered of its key leaves no room for it.
func (d *Denials) Answer(decision *count.Decision, t *demand.Target, cost int64, now store.Instant) bool {
	memory := d.of(t, now)
	return memory != nil && memory.until > now && memory.refuse(decision, cost, now)
}

// of returns what is remembered of t's key at now; nil for nothing.
func (d *Denials) of(t *demand.Target, now store.Instant) *denial {
	d.mu.Lock()
	memory, ok := d.young[t.Key]
	if !ok {
		memory, ok = d.old[t.Key]
	}
	d.mu.Unlock()
	if !ok || memory.plan != t.Plan || d.set.Timing.IsSetBack(memory.made, now) {
		return nil
	}
	return memory
}

// refuse denies cost at now, and reports true, if d leaves no room.
func (d *denial) refuse(decision *count.Decision, cost int64, now store.Instant) bool {
	return d.plan.Refuse(decision, &d.state, cost, max(now, d.state.Reset+1), now)
}

// Forget ends what is remembered of key, and of what is being read now.
func (d *Denials) Forget(key store.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgotten[key.Prefix()%denialMarks]++
	delete(d.young, key)
	delete(d.old, key)
}
