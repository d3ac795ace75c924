package limiter

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// request is one caller's wish while it is decided together with others.
type request struct {
	op       count.Op
	cost     int64
	hold     time.Duration // for how long the units are held, unless they are settled; 0: they stay
	alone    bool          // travels with no other, as it holds other keys as well
	id       store.EventID // of its event, dated; zero: one is made
	decision count.Decision
	without  count.Decision // what it would be if nothing were counted; filled in if alone
	err      error
	denied   bool  // answered by a denial, which stands if another attempt fails
	under    *plan // by which it is decided
	right    Right // by which it is decided; nil: nobody owns keys

	prepare store.EventID   // of a take, under which it is prepared; of an abort, what is aborted; zero: it stays
	fewer   <-chan struct{} // closed when it can be asked again, if it is in doubt

	ctx   context.Context // its caller's; nil unless what is done together is told
	until time.Time       // when its caller gives up; zero: never
	turn  chan []*request // receives the batch to lead, or is closed when answered
}

// endsAfter returns when a hold that begins at now ends; 0 for none.
func endsAfter(now store.Instant, hold time.Duration) store.Instant {
	if hold == 0 {
		return 0
	}
	return now.Add(hold)
}

// flights lets the requests for one key that arrive while another is being
// decided travel together afterwards: one write and one read for all of them, and
// no two batches of a key at the same time in this process.
type flights struct {
	together func(ctx context.Context, calls []context.Context) context.Context // Options.Together

	mu   sync.Mutex
	keys map[store.Key]*flight
}

// travelsWith reports whether one batch can hold r and other: not the same key under a policy
// that was reloaded, nor by another right.
func (r *request) travelsWith(other *request) bool {
	return !r.alone && !other.alone && r.under == other.under && r.right == other.right
}

// mostJoined returns how many requests travel with r at most.
func (r *request) mostJoined() int {
	if r.right != nil && r.right.Owned() && len(r.under.Logs) == 0 {
		return maxSummed
	}
	return maxJoined
}

// flight is one key's queue. It exists while a batch of the key is under way.
type flight struct{ waiting []*request }

// Bounds of a flight.
const (
	maxJoined  = 64   // requests in one batch of a log: its rows stay under Cassandra's 5 KiB warning
	maxSummed  = 1024 // requests in one batch of an owner's that is a sum: one row, however many they are, and nobody else counts them
	maxWaiting = 4096 // requests that wait for one key; beyond, waiting would outlast the store timeout
)

// join has r answered, by settle in a batch with others. It returns when r is,
// within timeout: of that it waits at most half for its batch to begin, so that
// under any load whoever leads a batch has time to settle it. A caller that goes
// away before its batch has begun, or whose time is over then, is not counted,
// and harms no other.
func (f *flights) join(ctx context.Context, k store.Key, r *request, timeout time.Duration,
	settle func(context.Context, []*request),
) {
	leading, cancel := ctx, func() {}
	if !r.alone { // others depend on it
		leading, cancel = context.WithTimeout(context.WithoutCancel(ctx), timeout)
	}
	defer cancel()
	if ctx.Err() != nil {
		r.err = tooLate(ctx.Err())
		return
	}
	r.until, _ = ctx.Deadline()
	if f.together != nil {
		r.ctx = ctx
	}
	batch, err := f.enter(k, r)
	if err == nil && batch == nil {
		batch, err = f.wait(ctx, k, r, timeout/2)
	}
	switch {
	case err != nil:
		r.err = err
	case len(batch) > 0:
		f.lead(leading, k, batch, settle)
	}
}

// tooLate returns the error of a request whose time was over before its batch began, by why.
func tooLate(why error) error {
	err := fmt.Errorf("%w: waiting for earlier requests of the same key: %w", store.ErrUnavailable, why)
	return &StoreError{Recorded: count.RecordedNo, Err: err}
}

// wait returns the batch that r is to lead, or nothing when r is answered. The
// error says that r's time was over before its batch began.
func (f *flights) wait(ctx context.Context, k store.Key, r *request, atMost time.Duration) ([]*request, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case batch := <-r.turn:
		return batch, nil
	case <-ctx.Done():
	}
	if f.leave(k, r) {
		return nil, tooLate(ctx.Err())
	}
	return <-r.turn, nil
}

// enter returns the batch that r is to lead at once, or queues r and returns none.
func (f *flights) enter(k store.Key, r *request) ([]*request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under, busy := f.keys[k]
	if !busy {
		if f.keys == nil {
			f.keys = make(map[store.Key]*flight)
		}
		f.keys[k] = &flight{}
		return []*request{r}, nil
	}
	if len(under.waiting) == maxWaiting {
		return nil, &StoreError{Recorded: count.RecordedNo, Err: fmt.Errorf("%w: %d requests wait for one key", store.ErrOverloaded, maxWaiting)}
	}
	r.turn = make(chan []*request, 1)
	under.waiting = append(under.waiting, r)
	return nil, nil
}

// leave takes r out of the queue; false when its batch has begun.
func (f *flights) leave(k store.Key, r *request) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	under, ok := f.keys[k]
	if !ok {
		return false
	}
	i := slices.Index(under.waiting, r)
	if i < 0 {
		return false
	}
	under.waiting = slices.Delete(under.waiting, i, i+1)
	return true
}

// lead settles batch, whose first request is the caller's own, passes the lead on,
// and wakes the others. The batch outlives its leader's context.
func (f *flights) lead(ctx context.Context, k store.Key, batch []*request, settle func(context.Context, []*request)) {
	defer func() {
		f.passOn(k)
		for _, r := range batch[1:] {
			close(r.turn)
		}
	}()
	settle(f.ofAll(ctx, batch), batch)
}

// ofAll returns ctx as the one of all of batch.
func (f *flights) ofAll(ctx context.Context, batch []*request) context.Context {
	if f.together == nil || len(batch) < 2 {
		return ctx
	}
	calls := make([]context.Context, len(batch))
	for i, r := range batch {
		calls[i] = r.ctx
	}
	return f.together(ctx, calls)
}

// dropLate answers those whose time is over: where this process stood still they do not know it yet.
func (f *flight) dropLate() {
	now := time.Now()
	f.waiting = slices.DeleteFunc(f.waiting, func(r *request) bool {
		late := !r.until.IsZero() && now.After(r.until)
		if late {
			r.err = tooLate(context.DeadlineExceeded)
			close(r.turn)
		}
		return late
	})
}

// passOn makes the first that waits the leader of the next batch.
func (f *flights) passOn(k store.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := f.keys[k]
	under.dropLate()
	if len(under.waiting) == 0 {
		delete(f.keys, k)
		return
	}
	n := 1
	for n < min(under.waiting[0].mostJoined(), len(under.waiting)) && under.waiting[0].travelsWith(under.waiting[n]) {
		n++
	}
	next := slices.Clone(under.waiting[:n])
	under.waiting = slices.Delete(under.waiting, 0, n)
	next[0].turn <- next
}
