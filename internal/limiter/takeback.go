package limiter

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// takeBacks are writes that wait for their time: subtractions from counters,
// which must not overtake a read that is still under way, and removals of events
// that failed once.
//
// A subtraction is made no sooner than a store timeout after its addition was
// acknowledged, once, and never again: a read that saw it and missed the addition
// would count too little. Removals and running totals are safe to repeat, and are until
// one succeeds.
// What can't be kept or fails stays counted until its window ends, which is on the
// side of denying.
type takeBacks struct {
	store   store.Store
	timeout time.Duration

	mu      sync.Mutex
	queue   []takeBack
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

// takeBack is one write and the soonest time to make it. That is a time of the
// monotonic clock: no option of the engine can turn it.
type takeBack struct {
	write *store.Write
	abort func(context.Context) error // instead of a write; safe to repeat
	ripe  time.Time
	tries int // that failed
}

// refusals are units of one counter that are counted, that nobody was admitted for,
// and that this process is going to subtract.
type refusals struct {
	counts []store.Count
	made   int // subtractions that have begun
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

func newTakeBacks(store store.Store, timeout time.Duration) *takeBacks {
	return &takeBacks{store: store, timeout: timeout, pending: make(map[counter]*refusals)}
}

// subtract queues the taking back of counts, whose addition was acknowledged.
func (t *takeBacks) subtract(of *target, counts []store.Count) {
	if len(counts) == 0 {
		return
	}
	t.push(takeBack{write: &store.Write{
		Key: of.key, Level: of.plan.Consistency.Write, Add: negated(counts), Tally: of.plan.Tally, Span: of.plan.Span,
	}})
}

// push queues b, unless it has failed too often.
func (t *takeBacks) push(b takeBack) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) >= maxTakeBacks || b.tries >= takeBackTries {
		return
	}
	b.ripe = time.Now().Add(t.timeout << b.tries)
	t.queue = append(t.queue, b)
	w := b.write
	if w == nil || len(w.Add) == 0 {
		return
	}
	at := counterAt(w.Key, w.Tally, w.Span)
	if t.pending[at] == nil {
		t.pending[at] = new(refusals)
	}
	t.pending[at].counts = append(t.pending[at].counts, w.Add...)
}

// refused is what the queued subtractions of a counter were when a read began.
type refused struct {
	of     *refusals
	counts []store.Count
	made   int
}

// before returns what is going to be subtracted from what q asks for, to be called before
// that is read.
func (t *takeBacks) before(q *store.Query) refused {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.pending[counterAt(q.Key, q.Tally, q.Span)]
	if of == nil {
		return refused{}
	}
	return refused{of: of, counts: slices.Clone(of.counts), made: of.made}
}

// discount takes r out of the state that was read since, and reports whether it did: no
// caller need be denied for units of this process that nobody was admitted for. It is safe
// only while no subtraction has begun, for the read may have seen it already; else it does
// nothing.
func (t *takeBacks) discount(r refused, s *store.State) bool {
	if r.of == nil || t.hasBegun(r) {
		return false
	}
	for _, c := range r.counts {
		s.Add(c)
	}
	return true
}

// recount puts r, which was taken out of s, back if a subtraction has begun since.
func (t *takeBacks) recount(r refused, s *store.State) {
	if r.of == nil || !t.hasBegun(r) {
		return
	}
	for _, c := range negated(r.counts) {
		s.Add(c)
	}
}

// hasBegun reports whether a subtraction of what r was queued with has begun.
func (t *takeBacks) hasBegun(r refused) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return r.of.made != r.made
}

// run makes the queued writes in their time until ctx ends, and then those that
// are left, as far as a store timeout and lastTakeBacks allow. What is being written when ctx ends is not given up: a subtraction that
// has no answer is not repeated.
func (t *takeBacks) run(ctx context.Context) {
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
func (t *takeBacks) hasten() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.queue {
		if b := &t.queue[i]; b.write == nil || len(b.write.Add) == 0 || b.write.Tally {
			b.ripe = time.Now()
		}
	}
}

// waiting reports whether anything is queued.
func (t *takeBacks) waiting() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queue) > 0
}

// due takes the writes whose time has come out of the queue.
func (t *takeBacks) due() []takeBack {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	var due []takeBack
	t.queue = slices.DeleteFunc(t.queue, func(b takeBack) bool {
		if !b.ripe.Before(now) { // nor what is queued at this very instant, of which a simulation can't tell whether it came first
			return false
		}
		due = append(due, b)
		t.begin(b.write)
		return true
	})
	return due
}

// begin notes that w is about to be made: its units are no longer sure to be
// counted.
func (t *takeBacks) begin(w *store.Write) {
	if w == nil || len(w.Add) == 0 {
		return
	}
	at := counterAt(w.Key, w.Tally, w.Span)
	of := t.pending[at]
	of.made++
	for _, c := range w.Add {
		if i := slices.Index(of.counts, c); i >= 0 {
			of.counts = slices.Delete(of.counts, i, i+1)
		}
	}
	if len(of.counts) == 0 {
		delete(t.pending, at)
	}
}

// make makes writes, several at a time, and returns when all are done.
func (t *takeBacks) make(ctx context.Context, due []takeBack) {
	shareOut(takeBackWriters, slices.Values(due), func(b takeBack) { t.makeOne(ctx, b) })
}

// makeOne makes a write, and queues it again if it failed and may be repeated.
func (t *takeBacks) makeOne(ctx context.Context, b takeBack) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if b.abort != nil {
		if b.abort(ctx) != nil {
			b.tries++
			t.push(b)
		}
		return
	}
	err := t.store.Write(ctx, b.write)
	if err != nil && (len(b.write.Add) == 0 || b.write.Tally || errors.Is(err, store.ErrNotStored)) {
		b.write = b.write.Again(err)
		b.tries++
		t.push(b)
	}
}
