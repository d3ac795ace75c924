package clock_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/clock"
)

// TestWithin holds that a context of Within ends when one of context.WithTimeout does, with the same error, whether
// somebody waits for it or asks only then.
func TestWithin(t *testing.T) {
	type made = func(context.Context, time.Duration) (context.Context, context.CancelFunc)
	for name, does := range map[string]func(t *testing.T, of made, waits bool) (context.Context, error){
		"its time is over": func(t *testing.T, of made, waits bool) (context.Context, error) {
			ctx, cancel := of(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx, ended(t, ctx, waits, time.Second)
		},
		"the parent's time is over before": func(t *testing.T, of made, waits bool) (context.Context, error) {
			parent, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			ctx, cancel := of(parent, time.Minute)
			t.Cleanup(cancel)
			return ctx, ended(t, ctx, waits, time.Second)
		},
		"the parent is cancelled": func(t *testing.T, of made, waits bool) (context.Context, error) {
			parent, cancel := context.WithCancel(t.Context())
			ctx, stop := of(parent, time.Minute)
			t.Cleanup(stop)
			time.AfterFunc(time.Second, cancel)
			return ctx, ended(t, ctx, waits, time.Second)
		},
		"it is cancelled": func(t *testing.T, of made, waits bool) (context.Context, error) {
			ctx, cancel := of(t.Context(), time.Minute)
			time.AfterFunc(time.Second, cancel)
			return ctx, ended(t, ctx, waits, time.Second)
		},
		"a child of it": func(t *testing.T, of made, waits bool) (context.Context, error) {
			ctx, cancel := of(t.Context(), time.Second)
			t.Cleanup(cancel)
			child, cancel := context.WithCancel(ctx)
			t.Cleanup(cancel)
			return ctx, ended(t, child, waits, time.Second)
		},
	} {
		for _, waits := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				_, want := does(t, context.WithTimeout, waits)
				ctx, got := does(t, clock.Within, waits)
				if !errors.Is(got, want) || want == nil {
					t.Errorf("%s, waiting %t: %v, want %v", name, waits, got, want)
				}
				select {
				case <-ctx.Done():
				default:
					t.Errorf("%s, waiting %t: who waits now is not told that it has ended", name, waits)
				}
			})
		}
	}
}

// ended returns the error of ctx, which lasts for so long and no longer.
func ended(t *testing.T, ctx context.Context, waits bool, lasts time.Duration) error {
	began := time.Now()
	if waits {
		<-ctx.Done()
		if lasted := time.Since(began); lasted != lasts {
			t.Errorf("it lasted %v, want %v", lasted, lasts)
		}
		return ctx.Err()
	}
	time.Sleep(lasts - time.Nanosecond)
	if err := ctx.Err(); err != nil {
		t.Errorf("%v before its time", err)
	}
	time.Sleep(time.Nanosecond)
	synctest.Wait()
	return ctx.Err()
}

// TestWithinHasNoGoroutines holds that contexts made of one end without a goroutine each.
func TestWithinHasNoGoroutines(t *testing.T) {
	ctx, cancel := clock.Within(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	before := runtime.NumGoroutine()
	for range 100 {
		_, stop := context.WithCancel(ctx)
		defer stop()
	}
	if made := runtime.NumGoroutine() - before; made > 50 {
		t.Errorf("100 contexts that were made of it have %d goroutines, want none", made)
	}
}
