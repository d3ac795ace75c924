package limiter_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func TestWaitersOfOneKeyShareAWriteAndARead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes = 10 * time.Millisecond
		e := newEngine(t, store, 0, policyOf("sliding-tail", 1000, time.Hour))
		allowed, failed := takeAtOnce(e, 50)
		if allowed != 50 || len(failed) > 0 {
			t.Fatalf("%d of 50 admitted, errors %v", allowed, failed)
		}
		if reads, writes := store.counts(); reads != 2 || writes != 2 {
			t.Errorf("%d reads and %d writes for one and the 49 that waited for it, want 2 and 2", reads, writes)
		}
		if _, failed := takeAtOnce(e, 1+200); len(failed) > 0 { // one, and then 64, 64, 64 and 8
			t.Error(failed)
		}
		if _, writes := store.counts(); writes != 2+5 {
			t.Errorf("%d writes for 201 at once, want 5: a batch must stay small", writes-2)
		}
	})
}

func TestFirstComeFirstServed(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			store := newFakeStore()
			store.writeTakes = 100 * time.Millisecond
			e := newEngine(t, store, 0, policyOf(algorithm, 5, time.Hour))
			var mu sync.Mutex
			var served []int
			var all sync.WaitGroup
			for i := range 10 {
				all.Go(func() {
					if mustTake(t, e).Allowed {
						mu.Lock()
						served = append(served, i)
						mu.Unlock()
					}
				})
				time.Sleep(time.Millisecond)
			}
			all.Wait()
			slices.Sort(served)
			if want := []int{0, 1, 2, 3, 4}; !slices.Equal(served, want) {
				t.Errorf("served %v, want %v", served, want)
			}
		})
	}
}

func TestCallerWhoGoesAwayHarmsNoOther(t *testing.T) {
	for _, c := range []struct {
		name  string
		gone  int // which of three callers goes away, before the first batch is written
		wants int // units counted in the end
	}{
		{"the leader of the batch under way", 0, 3},
		{"the next leader", 1, 2},
		{"another that waits", 2, 2},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store := newFakeStore()
			store.writeTakes = 100 * time.Millisecond
			e := newEngine(t, store, 0, policyOf("sliding-log", 10, time.Hour))
			for i := range 3 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				go func() {
					d, err := e.Take(ctx, somebody)
					if i != c.gone && (err != nil || !d.Allowed) {
						t.Errorf("caller %d: %v, %v", i, d.Allowed, err)
					}
				}()
				time.Sleep(time.Millisecond)
				if i == c.gone {
					time.AfterFunc(50*time.Millisecond, cancel)
				}
			}
			time.Sleep(time.Second)
			d, err := e.Check(t.Context(), somebody)
			if err != nil || d.Used != int64(c.wants) {
				t.Errorf("used %d, want %d (%v)", d.Used, c.wants, err)
			}
		})
	}
}

func TestDecisionEndsWithinTheStoreTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		s.writeTakes = time.Hour
		e := newEngine(t, s, 0, policyOf("sliding-log", 10, time.Hour))
		for i := range 20 { // arriving while earlier ones hang
			go func() {
				start := time.Now()
				_, err := e.Take(t.Context(), somebody)
				if took := time.Since(start); took > timeout || !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("caller %d: %v after %v", i, err, took)
				}
			}()
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
	})
}

// TestHotKeyBeyondWhatTheStoreCanDo offers one key half as much again as its
// batches can carry: what fits is served, and the rest refused before it is written.
func TestHotKeyBeyondWhatTheStoreCanDo(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes, store.readTakes = 10*time.Millisecond, 10*time.Millisecond // 64 in 20 ms: 3200 a second
		e := newEngine(t, store, 0, policyOf("sliding-tail", 1_000_000, time.Hour))
		const seconds, perSecond = 5, 5000
		var mu sync.Mutex
		served, unknown := 0, 0
		var all sync.WaitGroup
		for range seconds * perSecond {
			time.Sleep(time.Second / perSecond)
			all.Go(func() {
				d, err := e.Take(context.Background(), somebody)
				var failed *count.StoreError
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil && d.Allowed:
					served++
				case errors.As(err, &failed) && failed.Recorded == count.RecordedUnknown:
					unknown++
				}
			})
		}
		all.Wait()
		if served < seconds*3000 || unknown > 0 {
			t.Errorf("%d served in %d s, %d written in vain", served, seconds, unknown)
		}
	})
}

func TestCallersOwnDeadlineHarmsNoOther(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes = 50 * time.Millisecond
		e := newEngine(t, store, 0, policyOf("sliding-log", 100, time.Hour))
		go func() { _, _ = e.Take(t.Context(), somebody) }()
		time.Sleep(time.Millisecond)
		short, cancel := context.WithTimeout(t.Context(), 60*time.Millisecond)
		defer cancel()
		go func() { _, _ = e.Take(short, somebody) }() // leads the next batch
		time.Sleep(time.Millisecond)
		if allowed, failed := takeAtOnce(e, 10); allowed != 10 || len(failed) > 0 {
			t.Errorf("%d of 10 allowed, errors %v", allowed, failed)
		}
	})
}

func TestTooManyWaitersOfOneKey(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := newFakeStore()
		s.writeTakes = time.Hour
		e := newEngine(t, s, 0, policyOf("sliding-log", 10, time.Hour))
		_, failed := takeAtOnce(e, 5000)
		overloaded := 0
		for _, err := range failed {
			if errors.Is(err, store.ErrOverloaded) {
				overloaded++
			}
		}
		if want := 5000 - 1 - 4096; overloaded != want {
			t.Errorf("%d of 5000 refused, want %d", overloaded, want)
		}
	})
}

// callers is a fakeStore that knows for whom it is asked to write.
type callers struct {
	*fakeStore
	mu  sync.Mutex
	was [][]string // whose calls each write was for
}

type callerKey struct{}

func (c *callers) Write(ctx context.Context, w *store.Write) error {
	c.mu.Lock()
	switch who := ctx.Value(callerKey{}).(type) {
	case []string:
		c.was = append(c.was, who)
	case string:
		c.was = append(c.was, []string{who})
	}
	c.mu.Unlock()
	return c.fakeStore.Write(ctx, w)
}

func (c *callers) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, c, w, wrote)
}

func (c *callers) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, c, w, q)
}

// TestStoreIsAskedForAllWhoShareIt checks that a write for several calls has a context that says whose they are, and
// one for a lone call its own.
func TestStoreIsAskedForAllWhoShareIt(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		s := &callers{fakeStore: newFakeStore()}
		s.writeTakes = 10 * time.Millisecond
		e := limiter.New(s, &limiter.Options{
			StoreTimeout: timeout,
			Together: func(ctx context.Context, calls []context.Context) context.Context {
				var who []string
				for _, call := range calls {
					who = append(who, call.Value(callerKey{}).(string))
				}
				return context.WithValue(ctx, callerKey{}, who)
			},
		})
		if err := e.SetPolicies([]policy.Policy{policyOf("sliding-log", 10, time.Hour)}); err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for _, who := range []string{"first", "second", "third"} {
			all.Go(func() {
				if _, err := e.Take(context.WithValue(t.Context(), callerKey{}, who), somebody); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		all.Wait()
		if len(s.was) != 2 || !slices.Equal(s.was[0], []string{"first"}) || !slices.Equal(s.was[1], []string{"second", "third"}) {
			t.Errorf("writes are for %v", s.was)
		}
	})
}
