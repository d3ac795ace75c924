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

// TakeBacks are writes that wait for their time: subtractions from counters,
// which must not overtake a read that is still under way, and removals of events
// that failed once.
//
// A subtraction is made no sooner than a store timeout after its addition was
// acknowledged, once, and never again: a read that saw it and missed the addition
// would count too little. Removals and running totals are safe to repeat, and are until
// one succeeds.
// What can't be kept or fails stays counted until its window ends, which is on the
// side of denying.
type TakeBacks struct {
	store   store.Store
	timeout time.Duration

	mu      sync.Mutex
	queue   []TakeBack
	pending map[counter]*refusals // what the queued subtractions are going to take back
}

// counter tells apart the two ways in which the sums of a key are kept: a reload may change
// from one to the other, and what is subtracted from one is not in the other.
type counter struct {
	key   store.Key
	tally bool       // running totals
	span  store.Span // of these
}

// counterAt returns the counter of key that is running totals of a span, or else counters.
func counterAt(key store.Key, tally bool, span store.Span) counter {
	if !tally {
		return counter{key: key}
	}
	return counter{key: key, tally: true, span: span}
}

// TakeBack is one write and the soonest time to make it. That is a time of the
// monotonic clock: no option of the engine can turn it.
type TakeBack struct {
	Write *store.Write
	Abort func(context.Context) error // instead of a write; safe to repeat
	Then  func(context.Context)       // is called once the write is made, or may be and is not repeated; nil: nothing is
	ripe  time.Time
	tries int // that failed
}

// refusals are units of one counter that are counted, that nobody was admitted for,
// and that this process is going to subtract.
type refusals struct {
	counts []store.Count
	made   int // subtractions that have begun
	making int // of these, subtractions that are under way
}

// Bounds of what is taken back.
const (
	// maxTakeBacks bounds the queue: 64 Ki writes of some 300 bytes. A key over its
	// limit is read before it is written, so the queue grows with the number of keys
	// that reach their limit, not with the attempts on them.
	maxTakeBacks = 1 << 16
	// takeBackWriters is how many writes are made at the same time: enough to keep up
	// with takes at a few milliseconds a write, few enough to leave the store to them.
	takeBackWriters = 32
	// takeBackTries is how often a write is tried; each wait is twice the one before,
	// so that the last is made some 17 minutes after the first at the default timeout.
	takeBackTries = 12
	// lastTakeBacks is how long the queue may take when the engine ends, beside the store
	// timeout that subtractions wait for, and lastTakeBackTick how often it is looked through.
	lastTakeBacks    = 2 * time.Second
	lastTakeBackTick = 50 * time.Millisecond
)

// NewTakeBacks returns none yet, of what is in store and takes up to timeout.
func NewTakeBacks(store store.Store, timeout time.Duration) *TakeBacks {
	return &TakeBacks{store: store, timeout: timeout, pending: make(map[counter]*refusals)}
}

// Subtract queues the taking back of what w, which was acknowledged, added.
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

// Refused is what the queued subtractions of a counter were when a read began.
type Refused struct {
	of     *refusals
	counts []store.Count
	made   int

	Unsure bool // a subtraction was under way during the read, which may have seen it or not
}

// Before returns what is going to be subtracted from what q asks for, to be called before
// that is read.
func (t *TakeBacks) Before(q *store.Query) Refused {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.pending[counterAt(q.Key, q.Tally, q.Span)]
	if of == nil {
		return Refused{}
	}
	return Refused{of: of, counts: slices.Clone(of.counts), made: of.made, Unsure: of.making > 0}
}

// Discount takes r out of the state that was read since, and returns what it took out: no
// caller need be denied for units of this process that nobody was admitted for. It is safe
// only while no subtraction has begun, for the read may have seen it already; else it takes
// nothing.
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

// Recount puts r, which was taken out of s, back if a subtraction has begun since.
func (t *TakeBacks) Recount(r Refused, s *store.State) {
	if r.of == nil || !t.hasBegun(r) {
		return
	}
	for _, c := range Negated(r.counts) {
		s.Add(c)
	}
}

// hasBegun reports whether a subtraction of what r was queued with has begun.
func (t *TakeBacks) hasBegun(r Refused) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.of.made != r.made
}

// Run makes the queued writes in their time until ctx ends, and then those that
// are left, as far as a store timeout and lastTakeBacks allow. What is being written when ctx ends is not given up: a subtraction that
// has no answer is not repeated.
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

// hasten has all that is safe to be made at any time made now.
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

// due takes the writes whose time has come out of the queue.
func (t *TakeBacks) due() []TakeBack {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	var due []TakeBack
	t.queue = slices.DeleteFunc(t.queue, func(b TakeBack) bool {
		if !b.ripe.Before(now) { // nor what is queued at this very instant, of which a simulation can't tell whether it came first
			return false
		}
		due = append(due, b)
		t.begin(b.Write)
		return true
	})
	return due
}

// begin notes that w is about to be made: its units are no longer sure to be
// counted.
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

// end notes that w, which was about to be made, is no longer under way.
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
