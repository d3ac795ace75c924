package counted

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// flights lets the requests for one key that arrive while another is being
// decided travel together afterwards: one write and one read for all of them, and
// no two batches of a key at the same time in this process.
type flights struct {
	mu   sync.Mutex
	keys map[store.Key]*flight

	together func(ctx context.Context, calls []context.Context) context.Context // of Settings
}

// travelTogether reports whether one batch can hold r and other: not the same key under a policy
// that was reloaded, nor by another right.
func travelTogether(r *demand.Request, other *demand.Request) bool {
	return !r.Alone && !other.Alone && r.Under == other.Under && r.Right == other.Right
}

// mostJoined returns how many requests travel with r at most.
func mostJoined(r *demand.Request) int {
	if r.Right != nil && r.Right.Owned() && len(r.Under.Logs) == 0 {
		return maxSummed
	}
	return maxJoined
}

// flight is one key's queue. It exists while a batch of the key is under way.
type flight struct{ waiting []*demand.Request }

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
func (f *flights) join(ctx context.Context, k store.Key, r *demand.Request, timeout time.Duration,
	settle func(context.Context, []*demand.Request),
) {
	leading, cancel := ctx, func() {}
	if !r.Alone { // others depend on it
		leading, cancel = context.WithTimeout(context.WithoutCancel(ctx), timeout)
	}
	defer cancel()
	if ctx.Err() != nil {
		r.Err = tooLate(ctx.Err())
		return
	}
	r.Until, _ = ctx.Deadline()
	if f.together != nil {
		r.Ctx = ctx
	}
	batch, err := f.enter(k, r)
	if err == nil && batch == nil {
		batch, err = f.wait(ctx, k, r, timeout/2)
	}
	switch {
	case err != nil:
		r.Err = err
	case len(batch) > 0:
		f.lead(leading, k, batch, settle)
	}
}

// tooLate returns the error of a request whose time was over before its batch began, by why.
func tooLate(why error) error {
	err := fmt.Errorf("%w: waiting for earlier requests of the same key: %w", store.ErrUnavailable, why)
	return &count.StoreError{Recorded: count.RecordedNo, Err: err}
}

// wait returns the batch that r is to lead, or nothing when r is answered. The
// error says that r's time was over before its batch began.
func (f *flights) wait(ctx context.Context, k store.Key, r *demand.Request, atMost time.Duration) ([]*demand.Request, error) {
	ctx, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	select {
	case batch := <-r.Turn:
		return batch, nil
	case <-ctx.Done():
	}
	if f.leave(k, r) {
		return nil, tooLate(ctx.Err())
	}
	return <-r.Turn, nil
}

// enter returns the batch that r is to lead at once, or queues r and returns none.
func (f *flights) enter(k store.Key, r *demand.Request) ([]*demand.Request, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under, busy := f.keys[k]
	if !busy {
		if f.keys == nil {
			f.keys = make(map[store.Key]*flight)
		}
		f.keys[k] = &flight{}
		return []*demand.Request{r}, nil
	}
	if len(under.waiting) == maxWaiting {
		err := fmt.Errorf("%w: %d requests wait for one key", store.ErrOverloaded, maxWaiting)
		return nil, &count.StoreError{Recorded: count.RecordedNo, Err: err}
	}
	r.Turn = make(chan []*demand.Request, 1)
	under.waiting = append(under.waiting, r)
	return nil, nil
}

// leave takes r out of the queue; false when its batch has begun.
func (f *flights) leave(k store.Key, r *demand.Request) bool {
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
func (f *flights) lead(ctx context.Context, k store.Key, batch []*demand.Request, settle func(context.Context, []*demand.Request)) {
	defer func() {
		f.passOn(k)
		for _, r := range batch[1:] {
			close(r.Turn)
		}
	}()
	if f.together != nil && len(batch) > 1 {
		ctx = f.ofAll(ctx, batch)
	}
	settle(ctx, batch)
}

// ofAll returns ctx as the one of all of batch.
func (f *flights) ofAll(ctx context.Context, batch []*demand.Request) context.Context {
	calls := make([]context.Context, len(batch))
	for i, r := range batch {
		calls[i] = r.Ctx
	}
	return f.together(ctx, calls)
}

// dropLate answers those whose time is over: where this process stood still they do not know it yet.
func (f *flight) dropLate() {
	now := time.Now()
	f.waiting = slices.DeleteFunc(f.waiting, func(r *demand.Request) bool {
		late := !r.Until.IsZero() && now.After(r.Until)
		if late {
			r.Err = tooLate(context.DeadlineExceeded)
			close(r.Turn)
		}
		return late
	})
}

// passOn makes the first that waits the leader of the next batch.
func (f *flights) passOn(k store.Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := f.keys[k]
	if len(under.waiting) > 0 {
		under.dropLate()
	}
	if len(under.waiting) == 0 {
		delete(f.keys, k)
		return
	}
	n := 1
	for n < min(mostJoined(under.waiting[0]), len(under.waiting)) && travelTogether(under.waiting[0], under.waiting[n]) {
		n++
	}
	next := slices.Clone(under.waiting[:n])
	under.waiting = slices.Delete(under.waiting, 0, n)
	next[0].Turn <- next
}
