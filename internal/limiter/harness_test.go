package limiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// fakeStore is memory that several engines share, as slow and as faulty as a test
// wants it, and that remembers what it was asked. It runs in synctest bubbles.
type fakeStore struct {
	store.Store

	mu     sync.Mutex
	reads  []store.Query
	writes []store.Write

	readTakes, writeTakes time.Duration
	beforeRead            func(*store.Query)
	afterRead             func(*store.State) error
	onWrite               func(*store.Write) error // instead of storing when it fails
}

var errDropped = errors.New("said to be stored, and dropped")

func newFakeStore() *fakeStore { return &fakeStore{Store: embedded.New(nil)} }

// Read reads after readTakes, or fails with the context.
func (f *fakeStore) Read(ctx context.Context, q *store.Query) (store.State, error) {
	f.mu.Lock()
	kept := *q
	kept.Logs = slices.Clone(q.Logs)
	f.reads = append(f.reads, kept)
	takes, before, after := f.readTakes, f.beforeRead, f.afterRead
	f.mu.Unlock()
	if err := take(ctx, takes); err != nil {
		return store.State{}, err
	}
	if before != nil {
		before(q)
	}
	state, err := f.Store.Read(ctx, q)
	if err == nil && after != nil {
		err = after(&state)
	}
	return state, err
}

// Write stores after writeTakes, or fails with the context.
func (f *fakeStore) Write(ctx context.Context, w *store.Write) error {
	f.mu.Lock()
	f.writes = append(f.writes, *w)
	takes, onWrite := f.writeTakes, f.onWrite
	f.mu.Unlock()
	if err := take(ctx, takes); err != nil {
		return err
	}
	if onWrite != nil {
		if err := onWrite(w); errors.Is(err, errDropped) {
			return nil
		} else if err != nil {
			return err
		}
	}
	shared := *w // many engines have rows of their own in flight: none may be merged
	shared.Logs = slices.Clone(w.Logs)
	for i := range shared.Logs {
		shared.Logs[i].Keep = 1 << 20
	}
	return f.Store.Write(ctx, &shared)
}

func (f *fakeStore) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, f, w, wrote)
}

func (f *fakeStore) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, f, w, q)
}

// take lasts d, unless ctx ends before.
func take(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.Join(store.ErrUnavailable, ctx.Err())
	}
}

// counts returns how many reads and writes there were.
func (f *fakeStore) counts() (reads, writes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.reads), len(f.writes)
}

// set changes how the store behaves while engines run.
func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// last returns the write that came last.
func (f *fakeStore) last() store.Write {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.writes[len(f.writes)-1]
}

const (
	timeout   = 500 * time.Millisecond
	tolerance = 100 * time.Millisecond
)

// newEngine returns an engine over store whose clock is offset from the bubble's.
func newEngine(t testing.TB, store store.Store, offset time.Duration, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{
		ClockTolerance: tolerance,
		StoreTimeout:   timeout,
		Now:            func() time.Time { return time.Now().Add(offset) },
		Local:          embedded.New(nil),
	})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

// policyOf returns a policy of one limit.
func policyOf(algorithm string, limit int64, window time.Duration) policy.Policy {
	return policy.Policy{
		Name: "p", Counting: policy.CountingCounters, Limits: []policy.Limit{{Algorithm: algorithm, Limit: limit, Window: window}},
	}
}

// writtenFirst returns the algorithms that are written first and counted then over a
// shared store: all but those that are compared and set.
func writtenFirst() []string {
	return slices.DeleteFunc(policy.Algorithms(), func(name string) bool { return policy.Limit{Algorithm: name}.InCell() })
}

// remembered returns those of which instances remember denials: units of others are released at any time.
func remembered() []string {
	return slices.DeleteFunc(writtenFirst(), func(name string) bool { return name == policy.Concurrent.Name })
}

// inLog reports whether the algorithm of that name keeps events.
func inLog(name string) bool { return name == policy.SlidingLog.Name || name == policy.Concurrent.Name }

var somebody = limiter.Demand{Policy: "p", Identifier: "+4915112345678"}

func mustTake(t testing.TB, e *limiter.Engine) count.Decision {
	t.Helper()
	d, err := e.Take(context.Background(), somebody)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// takeAtOnce makes n takes at the same time and returns how many were allowed, and
// the errors.
func takeAtOnce(e *limiter.Engine, n int) (allowed int, failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			d, err := e.Take(context.Background(), somebody)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				failed = append(failed, err)
			case d.Allowed:
				allowed++
			}
		})
	}
	all.Wait()
	return allowed, failed
}

// running runs e beside the test, until the bubble's test function ends.
func running(t *testing.T, e *limiter.Engine) { runningUntil(t, e) }

// runningUntil runs e beside the test, until the function that it returns is called.
func runningUntil(t *testing.T, e *limiter.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}
