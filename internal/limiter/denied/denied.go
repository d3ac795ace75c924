package denied

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Denials remembers denials, so that a caller that retries is denied by the instance that it asks. It has two kinds: states
// of keys that were over their limit, which deny calls of any cost without a read of the store as long as they leave no
// room; and answers of keys' owners, which deny as long as the owner would give the same answer. No guarantee depends on
// them, as they admit nothing.
//
// Both kinds may include units that no longer count, and then deny a call that should be allowed: units that another
// instance has taken back, or that a refund or a reset has removed since. Refunds and resets are news, and news of a key
// drop both kinds. Only recent units may yet be taken back, so a state that depends on such units is remembered for a store
// timeout at most. Both kinds may also lack units, those that other instances have recorded since. These change no verdict,
// but the numbers of other limits and the waits in an answer, so nothing is remembered longer than MaxDenialAge.
//
// An owner does not deny by states from before its term: the previous owner may have reset the key, and this owner may not
// have received the news yet.
//
// States of cells are exact at any moment in the store, so remembered ones deny nothing while the store answers.
//
// Denials also remembers the keys that are likely to be over their limit. These are read before they are written.
type Denials struct {
	set     *demand.Settings
	doubted func(store.Key) bool

	mu         sync.Mutex
	young, old map[store.Key]denial
	events     int                 // in young
	forgotten  [denialMarks]uint64 // number of calls of Forget, by class of key
}

// denial has everything that is remembered of a key. Its parts are immutable once they are remembered.
type denial struct {
	full   *fullState    // nil: none
	answer *ownerAnswer  // nil: none
	likely store.Instant // takes are likely to be denied until this instant; 0: they are not
}

// fullState is the state of a key that leaves no room.
type fullState struct {
	base   *demand.Plan
	state  store.State
	events int       // number of events in state
	began  time.Time // when the term began under which state was read; zero: keys have no owners
	made   store.Instant
	until  store.Instant // when it must be read again, unless the store does not answer
}

// ownerAnswer is an owner's denial.
type ownerAnswer struct {
	plan     *demand.Plan
	cost     int64
	verdicts []count.LimitDecision
	at       time.Time // when it came
	until    time.Time // when the owner's answer may begin to differ
}

// Bounds of each of the two generations of denials; beyond them, the older generation is dropped.
const (
	maxDenials      = 1 << 16 // keys, of 300 bytes and more: 20 MiB
	maxDenialEvents = 1 << 19 // of 40 bytes: 20 MiB
)

// denialMarks is the number of classes of keys, a power of two. After Forget of a key, the results of reads that are in
// progress for keys of its class are not remembered.
const denialMarks = 1 << 10

// MaxDenialAge is the longest time for which a denial is remembered: a caller that retries each second then causes a tenth
// of the reads, and an operator sees a state that is at most some seconds old.
const MaxDenialAge = 10 * time.Second

// ProvisionalPart divides the store timeout: a denial is remembered for that part of it if other instances' units in flight
// may have caused it. Such units are removed after a few round trips.
const ProvisionalPart = 10

// New returns an empty Denials. doubted reports whether units that are yet to be committed or aborted may have caused a
// denial of a key; nil: there are no such units.
func New(set *demand.Settings, doubted func(store.Key) bool) *Denials {
	return &Denials{set: set, doubted: doubted}
}

// Recall decides c, and returns true, if a remembered denial of its key applies to it.
func (d *Denials) Recall(c *demand.Charge) bool {
	d.mu.Lock()
	known := d.of(c.Key)
	d.mu.Unlock()
	if c.Term != nil && c.Term.Owned() {
		known = known.under(c.Term.Began())
	}
	if known.full == nil && known.answer == nil || c.Op == count.OpRecord || !c.Decides() {
		return false
	}
	now, err := d.set.Timing.Checked()
	return err == nil && (known.answer.denies(c) || known.full != nil && known.full.until > now && d.isFull(known.full, c, now))
}

// under returns the part of known by which an owner may deny. began is when its term began.
func (known denial) under(began time.Time) denial {
	known.answer = nil
	if known.full != nil && !known.full.began.Equal(began) {
		known.full = nil
	}
	return known
}

// KnownFull decides c, and returns true, if its policy's on_store_error is local and the key's state that was read last
// leaves no room. It is for calls that the store did not answer.
func (d *Denials) KnownFull(c *demand.Charge) bool {
	if c.Plan.OnStoreError != policy.OnStoreErrorLocal || c.Op == count.OpRecord {
		return false
	}
	d.mu.Lock()
	full := d.of(c.Key).full
	d.mu.Unlock()
	known := full != nil && d.isFull(full, c, d.set.Timing.Instant())
	c.Decision.Remembered = false // the decision is not instead of a request to the store, which failed
	return known
}

// isFull denies c at now, and returns true, if the state full has no room for a unit.
func (d *Denials) isFull(full *fullState, c *demand.Charge, now store.Instant) bool {
	return full.base == c.Plan.Base && !d.set.Timing.IsSetBack(full.made, now) &&
		c.Plan.Refuse(&c.Decision, &full.state, c.Cost, max(now, full.state.Reset+1), now) // calls of one key may have different plans
}

// denies denies c, and returns true, if the answer a applies to it. a may be nil.
func (a *ownerAnswer) denies(c *demand.Charge) bool {
	if a == nil || a.plan != c.Plan || a.cost != c.Cost {
		return false
	}
	now := time.Now()
	if !now.Before(a.until) {
		return false
	}
	passed := now.Sub(a.at)
	for i, limits := 0, c.Plan.Begin(&c.Decision); i < len(limits); i++ {
		v := a.verdicts[i].Verdict
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

// Expect notes that takes of key are likely to be denied until an instant, so that a read may save a write. An until of 0
// means that there was room.
func (d *Denials) Expect(key store.Key, until store.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if known := d.of(key); known.likely != until {
		known.likely = until
		d.put(key, known)
	}
}

// Likely reports whether a take of key is likely to be denied.
func (d *Denials) Likely(key store.Key) bool {
	d.mu.Lock()
	until := d.of(key).likely
	d.mu.Unlock()
	return until > 0 && d.set.Timing.Instant() < until
}

// of returns everything that is remembered of key. The caller holds the lock.
func (d *Denials) of(key store.Key) denial {
	if known, ok := d.young[key]; ok {
		return known
	}
	return d.old[key]
}

// put replaces everything that is remembered of key by known. The caller holds the lock.
func (d *Denials) put(key store.Key, known denial) {
	if d.young == nil || len(d.young) >= maxDenials || d.events >= maxDenialEvents {
		d.old, d.young, d.events = d.young, make(map[store.Key]denial), 0
	}
	if known.full != nil && known.full != d.young[key].full {
		d.events += known.full.events
	}
	d.young[key] = known
}

// Since returns a mark to pass to Put, KeepFull or PutAnswer. It must be called before the read of key, or the call to its
// owner, whose result may be remembered.
func (d *Denials) Since(key store.Key) (mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.forgotten[key.Prefix()%denialMarks]
}

// Put remembers state, which was read for t after mark, if it leaves no room. began is when the term began under which it
// was read. others means that it has units of other instances that may yet be taken back; own means that all its sums are
// final and of this process. Put keeps a copy. It remembers nothing for concurrent limits, whose units may be released at
// any time, without news.
func (d *Denials) Put(t *demand.Target, began time.Time, state *store.State, others, own bool, now store.Instant, mark uint64) {
	if t.Plan.Count == policy.CountAll || t.Plan.Releases || !t.Plan.Full(state, max(now, state.Reset+1)) {
		return
	}
	until := d.until(t, state, own, now)
	if others {
		until = now.Add(d.set.StoreTimeout / ProvisionalPart)
	}
	d.keep(t, began, state, now, until, mark)
}

// KeepFull remembers state, which was read at now for t after mark, if it leaves no room and the policy's on_store_error is
// local. The state denies calls only while the store does not answer. KeepFull ignores concurrent limits, as there are no
// news of releases.
func (d *Denials) KeepFull(t *demand.Target, state *store.State, now store.Instant, mark uint64) {
	if t.Plan.OnStoreError == policy.OnStoreErrorLocal && !t.Plan.Releases && t.Plan.Full(state, now) {
		d.keep(t, time.Time{}, state, now, now, mark)
	}
}

// keep remembers state until an instant, and longer for calls that the store does not answer.
func (d *Denials) keep(t *demand.Target, began time.Time, state *store.State, now, until store.Instant, mark uint64) {
	if d.doubted != nil && d.doubted(t.Key) {
		return
	}
	full := &fullState{base: t.Plan.Base, state: state.Counted(), began: began, made: now, until: until}
	full.state.Buckets, full.state.Conversions = slices.Clone(state.Buckets), slices.Clone(state.Conversions)
	for i := range state.Logs {
		full.state.Logs = append(full.state.Logs, store.Log{Events: slices.Clone(state.Logs[i].Events)})
		full.events += len(state.Logs[i].Events)
	}
	d.remember(t.Key, denial{full: full}, mark)
}

// remember adds part to what is remembered of key, unless key was forgotten after mark.
func (d *Denials) remember(key store.Key, part denial, mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.forgotten[key.Prefix()%denialMarks] != mark {
		return
	}
	known := d.of(key)
	known.full, known.answer = cmp.Or(part.full, known.full), cmp.Or(part.answer, known.answer)
	d.put(key, known)
}

// until returns the instant until which a denial of t by state is remembered if no units of other instances are known to be
// in flight.
func (d *Denials) until(t *demand.Target, state *store.State, own bool, now store.Instant) store.Instant {
	if !d.set.News || len(t.OldKeys) > 0 || !d.isFinal(t.Plan, state, own, now) {
		return now.Add(d.set.StoreTimeout)
	}
	return now.Add(MaxDenialAge)
}

// isFinal reports whether certainly none of state's units will be taken back. That is not certain for counters and other
// instances' running totals, which don't say how old their units are.
func (d *Denials) isFinal(p *demand.Plan, state *store.State, own bool, now store.Instant) bool {
	bound := now.Add(-2*d.set.StoreTimeout - 2*d.set.ClockTolerance)
	for i := range state.Logs {
		if events := state.Logs[i].Events; len(events) > 0 && events[len(events)-1].At > bound {
			return false
		}
	}
	return !p.Counters || own
}

// Forget drops everything that is remembered of key, and the results of its reads and calls that are in progress.
func (d *Denials) Forget(key store.Key) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgotten[key.Prefix()%denialMarks]++
	delete(d.young, key)
	delete(d.old, key)
}

// PutAnswer remembers the owner's decision of c if it is a denial. The owner was asked at asked, after mark.
func (d *Denials) PutAnswer(c *demand.Charge, asked time.Time, mark uint64) {
	steady := min(c.Steady, MaxDenialAge)
	if !d.set.News {
		steady = min(steady, d.set.StoreTimeout)
	}
	if steady <= 0 || c.Decision.WouldAllow || c.Op == count.OpRecord || c.Plan.Count == policy.CountAll || len(c.OldKeys) > 0 {
		return
	}
	d.remember(c.Key, denial{answer: &ownerAnswer{
		plan: c.Plan, cost: c.Cost, verdicts: slices.Clone(c.Decision.Limits()), at: time.Now(), until: asked.Add(steady),
	}}, mark)
}

// Changes counts the changes of keys by class of key.
type Changes [changeMarks]atomic.Uint64

// changeMarks is the number of classes, so large that few full keys share a class with a key that is not full.
const changeMarks = 1 << 12

// Of returns the number of changes in key's class.
func (c *Changes) Of(key *store.Key) uint64 { return c[key.Prefix()%changeMarks].Load() }

// Note notes a change of key.
func (c *Changes) Note(key *store.Key) { c[key.Prefix()%changeMarks].Add(1) }

// Lately remembers which keys changed last, and when.
type Lately struct{ at bounded.Recent[time.Time] }

// Note notes a change of key.
func (l *Lately) Note(key store.Key) { l.at.Put(key, time.Now()) }

// Within reports whether key changed within d.
func (l *Lately) Within(key store.Key, d time.Duration) bool {
	at, ok := l.at.Get(key)
	return ok && time.Since(at) < d
}
