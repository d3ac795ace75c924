package breaker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/breaker"
	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, breaker.New(embedded.New(nil), nil))
}

// flaky fails every request with err, when there is one, and counts them.
type flaky struct {
	err  error
	asks atomic.Int64
	hold time.Duration // how long a request takes

	spares int64 // every so many asks one succeeds all the same; 0: none
}

// Read fails or returns nothing.
func (f *flaky) Read(context.Context, *store.Query) (store.State, error) {
	f.asks.Add(1)
	time.Sleep(f.hold) // in a synctest bubble
	return store.State{}, f.err
}

// Write fails or stores nothing.
func (f *flaky) Write(context.Context, *store.Write) error {
	if n := f.asks.Add(1); f.spares > 0 && n%f.spares == 0 {
		return nil
	}
	return f.err
}

func (f *flaky) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, f, w, wrote)
}

func (f *flaky) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, f, w, q)
}

func TestDeadStoreIsProbedByOneRequestAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{err: store.ErrUnavailable}
		var changes []bool
		b := breaker.New(s, &breaker.Options{
			Failures: 3, Pause: time.Second, OnChange: func(closed bool) { changes = append(changes, closed) },
		})
		read := func() error { _, err := b.Read(t.Context(), &store.Query{}); return err }
		for range 10 {
			if err := read(); !errors.Is(err, store.ErrUnavailable) {
				t.Fatal(err)
			}
		}
		if s.asks.Load() != 3 {
			t.Errorf("a dead store was asked %d times, want 3", s.asks.Load())
		}
		if err := b.Write(t.Context(), &store.Write{}); !errors.Is(err, store.ErrNotStored) {
			t.Errorf("a write that was not tried: %v", err)
		}

		time.Sleep(time.Second + time.Millisecond)
		s.hold = 100 * time.Millisecond
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { _ = read() })
		}
		all.Wait()
		if s.asks.Load() != 4 {
			t.Errorf("%d probes at the same time, want 1", s.asks.Load()-3)
		}

		s.err, s.hold = nil, 0
		time.Sleep(time.Second + time.Millisecond)
		for range 5 {
			if err := read(); err != nil {
				t.Errorf("the store is back: %v", err)
			}
		}
		if len(changes) != 2 || changes[0] || !changes[1] {
			t.Errorf("changes %v, want open, then closed", changes)
		}
	})
}

// Writes that go together are one request: it fails if all of them do.
func TestWriteEachIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{err: store.ErrUnavailable}
		b := breaker.New(s, &breaker.Options{Failures: 3})
		write := func() (asks int64, failed, refused int) {
			var mu sync.Mutex
			before := s.asks.Load()
			b.WriteEach(t.Context(), make([]store.Write, 4), func(_ int, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					failed++
				}
				if errors.Is(err, store.ErrNotStored) && errors.Is(err, store.ErrUnavailable) {
					refused++
				}
			})
			return s.asks.Load() - before, failed, refused
		}
		for range 3 {
			if asks, failed, refused := write(); asks != 4 || failed != 4 || refused != 0 {
				t.Errorf("asked %d times of 4, %d failed, %d were not tried", asks, failed, refused)
			}
		}
		if asks, failed, refused := write(); asks != 0 || failed != 4 || refused != 4 {
			t.Errorf("it is open: asked %d times, %d failed, %d were not tried", asks, failed, refused)
		}
		s.err = nil
		time.Sleep(breaker.DefaultPause + time.Millisecond)
		if asks, failed, _ := write(); asks != 4 || failed != 0 {
			t.Errorf("the store is back: asked %d times, %d failed", asks, failed)
		}
		s.err, s.spares = store.ErrUnavailable, 3
		for range 10 {
			time.Sleep(breaker.DefaultSilence / 4)
			if asks, failed, refused := write(); asks != 4 || failed == 0 || refused != 0 {
				t.Errorf("one of four succeeds: asked %d times, %d failed, %d were not tried", asks, failed, refused)
			}
		}
	})
}

// A write and the read after it are one request. While it is open neither is tried, and a store
// that writes is not silent though it can't be read.
func TestWriteThenReadIsOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &flaky{err: store.ErrUnavailable}
		b := breaker.New(s, &breaker.Options{Failures: 3})
		want := func(asks int64, wrote bool, want error) {
			t.Helper()
			before := s.asks.Load()
			_, got, err := b.WriteThenRead(t.Context(), new(store.Write), new(store.Query))
			refused := errors.Is(err, store.ErrNotStored)
			if n := s.asks.Load() - before; n != asks || got != wrote || !errors.Is(err, want) || refused != (asks == 0) {
				t.Errorf("asked %d times, written %v, %v; want %d, %v, %v", n, got, err, asks, wrote, want)
			}
		}
		for range 3 {
			want(1, false, store.ErrUnavailable)
		}
		want(0, false, store.ErrUnavailable)
		s.err = nil
		time.Sleep(breaker.DefaultPause + time.Millisecond)
		want(2, true, nil)
		s.err, s.spares = store.ErrUnavailable, 1
		time.Sleep(breaker.DefaultSilence)
		for range 10 {
			want(2, true, store.ErrUnavailable)
		}
	})
}

// Requests that one node of several was asked for fail together when it stands still;
// others are answered meanwhile.
func TestFailuresBesideSuccessesDoNotOpenIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(flaky)
		b := breaker.New(s, &breaker.Options{Failures: 3, Silence: time.Second})
		read := func(err error) {
			s.err = err
			_, _ = b.Read(t.Context(), &store.Query{})
		}
		read(nil)
		time.Sleep(time.Second - time.Millisecond)
		for range 10 {
			read(store.ErrUnavailable)
		}
		if got := s.asks.Load(); got != 11 {
			t.Errorf("asked %d times of 11, of which the first was answered", got)
		}
		time.Sleep(time.Millisecond)
		read(store.ErrUnavailable)
		read(nil)
		if got := s.asks.Load(); got != 12 {
			t.Errorf("asked %d times, want 12: nothing was answered for a second", got)
		}
	})
}

func TestWhatSaysNothingOfTheStoreDoesNotOpenIt(t *testing.T) {
	for _, err := range []error{
		context.Canceled, errors.Join(store.ErrUnavailable, store.ErrTooFewReplicas), store.ErrConflict,
	} {
		s := &flaky{err: err}
		b := breaker.New(s, &breaker.Options{Failures: 3})
		for range 10 {
			_ = b.Write(t.Context(), &store.Write{})
		}
		if s.asks.Load() != 10 {
			t.Errorf("%v: asked %d times of 10", err, s.asks.Load())
		}
	}
}
