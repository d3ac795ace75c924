package totals

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/bounded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TakeBacks are delayed writes: subtractions from counters, which must not overtake a read in progress, and removals of
// events that failed once.
//
// A subtraction is made at the earliest a store timeout after its addition was acknowledged, and only once: a read that
// saw the subtraction and missed the addition would count too little. Removals and running totals are safe to repeat,
// and are repeated until one succeeds, at most takeBackTries times. If a take-back has no room in the queue, or fails for
// good, its units stay counted until their window ends, which errs on the side of denying.
type TakeBacks struct {
	store   store.Store
	timeout time.Duration

	mu      sync.Mutex
	queue   []TakeBack
	pending map[counter]*refusals // units that queued or begun subtractions take back
}

// counter identifies a key's sums of one kind, counters or running totals: a reload may change the kind, and a
// subtraction from one kind does not change the other.
type counter struct {
	key   store.Key
	tally bool       // running totals
	span  store.Span // of the running totals
}

// counterAt returns the counter of key: its running totals of a span if tally is true, else its counters.
func counterAt(key store.Key, tally bool, span store.Span) counter {
	if !tally {
		return counter{key: key}
	}
	return counter{key: key, tally: true, span: span}
}

// TakeBack is one write and the earliest time for it, by the monotonic clock, which the engine's options don't change.
type TakeBack struct {
	Write *store.Write
	Abort func(context.Context) error // instead of a write; safe to repeat
	Then  func(context.Context)       // called after a write that succeeded, or failed and is not repeated; nil: no call
	ripe  time.Time                   // the earliest time for the write
	tries int                         // failed attempts
}

// refusals are units of one counter that were counted and not admitted, and that this process subtracts.
type refusals struct {
	counts []store.Count // whose subtractions have not begun
	made   int           // subtractions that have begun
	making int           // of these, subtractions in progress
}

// Bounds of take-backs.
const (
	// maxTakeBacks bounds the queue: 64 Ki writes of some 300 bytes. A key over its limit is read before it is written,
	// so the queue grows with the number of keys that reach their limit, not with the number of denied calls.
	maxTakeBacks = 1 << 16
	// takeBackWriters is the number of concurrent writes: so many that they keep up with takes at a few milliseconds a
	// write, and so few that the store has time for takes.
	takeBackWriters = 32
	// takeBackTries is the number of attempts at a write. Each wait is twice the one before, so that at the default
	// timeout the last attempt is some 17 minutes after the first.
	takeBackTries = 12
	// lastTakeBacks is the time for the queue when the engine ends, after the store timeout for which subtractions wait.
	// lastTakeBackTick is the interval at which the queue is then checked.
	lastTakeBacks    = 2 * time.Second
	lastTakeBackTick = 50 * time.Millisecond
)

// NewTakeBacks returns an empty TakeBacks for store with this store timeout.
func NewTakeBacks(store store.Store, timeout time.Duration) *TakeBacks {
	return &TakeBacks{store: store, timeout: timeout, pending: make(map[counter]*refusals)}
}

// Subtract queues the subtraction of the units that w, which was acknowledged, added.
func (t *TakeBacks) Subtract(w *store.Write) {
	if len(w.Add) == 0 {
		return
	}
	w.Add = Negated(w.Add)
	t.Push(TakeBack{Write: w})
}

// Push queues b, unless it has failed too often.
func (t *TakeBacks) Push(b TakeBack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= maxTakeBacks || b.tries >= takeBackTries {
		return
	}
	b.ripe = time.Now().Add(t.timeout << b.tries)
	t.queue = append(t.queue, b)
	w := b.Write
	if w == nil || len(w.Add) == 0 {
		return
	}
	at := counterAt(w.Key, w.Tally, w.Span)
	if t.pending[at] == nil {
		t.pending[at] = new(refusals)
	}
	t.pending[at].counts = append(t.pending[at].counts, w.Add...)
}

// Refused has the queued subtractions of a counter at the beginning of a read.
type Refused struct {
	of     *refusals
	counts []store.Count
	made   int

	Unsure bool // a subtraction was in progress during the read, which may have seen it or not
}

// Before returns the queued subtractions from q's counters. It must be called before the read of q.
func (t *TakeBacks) Before(q *store.Query) Refused {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.pending[counterAt(q.Key, q.Tally, q.Span)]
	if of == nil {
		return Refused{}
	}
	return Refused{of: of, counts: slices.Clone(of.counts), made: of.made, Unsure: of.making > 0}
}

// Discount subtracts r from the state that was read since, and returns the subtracted units, so that no call is denied
// because of units that this process did not admit. It subtracts nothing if a subtraction has begun since, because the
// read may have seen that already.
func (t *TakeBacks) Discount(r Refused, s *store.State) Refused {
	if r.of == nil {
		return r
	}
	if t.hasBegun(r) {
		return Refused{Unsure: true}
	}
	for _, c := range r.counts {
		s.Add(c)
	}
	return r
}

// Recount adds r, which Discount subtracted from s, to s again if a subtraction has begun since.
func (t *TakeBacks) Recount(r Refused, s *store.State) {
	if r.of == nil || !t.hasBegun(r) {
		return
	}
	for _, c := range Negated(r.counts) {
		s.Add(c)
	}
}

// hasBegun reports whether a subtraction from r's counter has begun since r.
func (t *TakeBacks) hasBegun(r Refused) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.of.made != r.made
}

// Run makes the queued writes when they are due. When ctx ends, it makes those that remain, for a store timeout and
// lastTakeBacks at most. It does not abandon writes in progress then, because a subtraction without an answer can't be
// repeated.
func (t *TakeBacks) Run(ctx context.Context) {
	tick := time.NewTicker(t.timeout / 2)
	defer tick.Stop()
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(t.timeout+lastTakeBacks, cancel) })()
	for ctx.Err() == nil {
		select {
		case <-tick.C:
			t.make(longer, t.due())
		case <-ctx.Done():
		}
	}
	t.hasten()
	tick.Reset(min(t.timeout/2, lastTakeBackTick))
	for t.waiting() && longer.Err() == nil {
		select {
		case <-tick.C:
			t.make(longer, t.due())
		case <-longer.Done():
		}
	}
}

// hasten makes those queued writes due now that are safe at any time: all but subtractions from counters.
func (t *TakeBacks) hasten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.queue {
		if b := &t.queue[i]; b.Write == nil || len(b.Write.Add) == 0 || b.Write.Tally {
			b.ripe = time.Now()
		}
	}
}

// waiting reports whether anything is queued.
func (t *TakeBacks) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0
}

// due removes the writes that are due from the queue, and returns them.
func (t *TakeBacks) due() []TakeBack {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	var due []TakeBack
	t.queue = slices.DeleteFunc(t.queue, func(b TakeBack) bool {
		if !b.ripe.Before(now) { // at the very instant it also waits: in a simulation, other events may have the same instant
			return false
		}
		due = append(due, b)
		t.begin(b.Write)
		return true
	})
	return due
}

// begin notes that w is about to be made: from now on the store may or may not have subtracted its units.
func (t *TakeBacks) begin(w *store.Write) {
	if w == nil || len(w.Add) == 0 {
		return
	}
	at := counterAt(w.Key, w.Tally, w.Span)
	of := t.pending[at]
	of.made++
	of.making++
	for _, c := range w.Add {
		if i := slices.Index(of.counts, c); i >= 0 {
			of.counts = slices.Delete(of.counts, i, i+1)
		}
	}
}

// end notes that w, which has begun, is no longer in progress.
func (t *TakeBacks) end(w *store.Write) {
	if len(w.Add) == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := counterAt(w.Key, w.Tally, w.Span)
	of := t.pending[at]
	if of.making--; of.making == 0 && len(of.counts) == 0 {
		delete(t.pending, at)
	}
}

// make makes writes, several at a time, and returns when all are done.
func (t *TakeBacks) make(ctx context.Context, due []TakeBack) {
	bounded.Each(takeBackWriters, slices.Values(due), func(b TakeBack) { t.makeOne(ctx, b) })
}

// makeOne makes a write, and queues it again if it failed and may be repeated.
func (t *TakeBacks) makeOne(ctx context.Context, b TakeBack) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if b.Abort != nil {
		if b.Abort(ctx) != nil {
			b.tries++
			t.Push(b)
		}
		return
	}
	err := t.store.Write(ctx, b.Write)
	t.end(b.Write)
	switch {
	case err != nil && (len(b.Write.Add) == 0 || b.Write.Tally || errors.Is(err, store.ErrNotStored)):
		b.Write = b.Write.Again(err)
		b.tries++
		t.Push(b)
	case b.Then != nil:
		b.Then(ctx)
	}
}
