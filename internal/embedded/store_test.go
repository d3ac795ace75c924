package embedded_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, embedded.New(nil))
}

// TestConformanceShared hides that the store can hold a key still, so that the
// engine writes first and counts then, as it does over a store that is shared.
func TestConformanceShared(t *testing.T) {
	storetest.Run(t, struct{ store.Store }{embedded.New(nil)})
	storetest.RunTallied(t, embedded.New(nil))
}

// newEngine returns an engine over a store with these options, and the clock that
// both go by.
func newEngine(t *testing.T, opts embedded.Options, p policy.Policy) (*limiter.Engine, *embedded.Store, *time.Time) {
	t.Helper()
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	opts.Now = func() time.Time { return now }
	store := embedded.New(&opts)
	e := limiter.New(store, &limiter.Options{Now: opts.Now})
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	return e, store, &now
}

func policyOf(algorithm string, limit int64, window time.Duration) policy.Policy {
	return policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: algorithm, Limit: limit, Window: window}}}
}

func take(t *testing.T, e *limiter.Engine, id int) (count.Decision, error) {
	t.Helper()
	return e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: keys.Identifier(strconv.Itoa(id))})
}

func TestKeysExpire(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		synctest.Test(t, func(t *testing.T) {
			store := embedded.New(nil)
			e := limiter.New(store, nil)
			if err := e.SetPolicies([]policy.Policy{policyOf(algorithm, 3, time.Hour)}); err != nil {
				t.Fatal(err)
			}
			const keys = 1000
			for i := range keys {
				if _, err := take(t, e, i); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- store.Run(ctx) }()
			time.Sleep(59 * time.Minute) // of the bubble: every shard has been visited often
			if got := store.Len(); got != keys {
				t.Errorf("%s: %d keys of %d are left before their windows are over", algorithm, got, keys)
			}
			time.Sleep(2 * time.Hour)
			if got := store.Len(); got != 0 {
				t.Errorf("%s: %d keys are left", algorithm, got)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// The same reset again lives as long as it is asked to then.
func TestResetThatIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := embedded.New(nil)
		running, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = in.Run(running) }()
		at, key := store.InstantOf(time.Now()), store.KeyFrom([store.KeySize]byte{1})
		for _, lives := range []time.Duration{time.Second, time.Hour, time.Second} {
			if err := in.Write(t.Context(), &store.Write{Key: key, Reset: at, ResetTTL: lives}); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []store.Instant{at, 0} {
			time.Sleep(40 * time.Minute)
			if s, err := in.Read(t.Context(), &store.Query{Key: key}); err != nil || s.Reset != want {
				t.Errorf("reset at %d, %v: want %d", s.Reset, err, want)
			}
		}
	})
}

func TestNoRoomForANewKey(t *testing.T) {
	e, s, now := newEngine(t, embedded.Options{MaxKeys: 640}, policyOf("sliding-log", 3, time.Minute))
	refused := 0
	for i := range 2000 {
		_, err := take(t, e, i)
		switch {
		case errors.Is(err, store.ErrOverloaded):
			refused++
		case err != nil:
			t.Fatal(err)
		}
	}
	if got := s.Len(); got > 640 || refused != 2000-got {
		t.Errorf("%d keys are kept of 640, %d refused", got, refused)
	}
	if d, err := take(t, e, 0); err != nil || d.Used != 2 {
		t.Errorf("a key that is there: %+v, %v", d.Verdict, err)
	}
	*now = now.Add(2 * time.Minute)
	for i := range 100 {
		if _, err := take(t, e, 10_000+i); err != nil {
			t.Fatalf("with expired keys to make room: %v", err)
		}
	}
}

// TestLogOfAnyNumberOfAttemptsIsBounded knocks on one key a hundred thousand times
// under count: all, which counts every attempt.
func TestLogOfAnyNumberOfAttemptsIsBounded(t *testing.T) {
	p := policyOf("sliding-log", 10, time.Hour)
	p.Count = policy.CountAll
	e, s, now := newEngine(t, embedded.Options{}, p)
	start := *now
	all := keys.Keyer{}
	key := all.For(keys.KeySpace{Policy: "p", Guarantee: policy.GuaranteeCounted, Scope: ""}).Of("1")
	for i := range 100_000 {
		*now = start.Add(time.Duration(i) * time.Millisecond)
		d, err := take(t, e, 1)
		if err != nil || d.Allowed != (i < 10) {
			t.Fatalf("attempt %d: %+v, %v", i+1, d.Verdict, err)
		}
	}
	state, err := s.Read(t.Context(), &store.Query{Key: key, Logs: []store.LogQuery{{Span: store.SpanHour, Max: 1 << 20}}})
	if err != nil || len(state.Logs[0].Events) == 0 || len(state.Logs[0].Events) > 64 {
		t.Errorf("%d events are kept for a limit of 10, %v", len(state.Logs[0].Events), err)
	}
	// The tenth last attempt has to leave the window before another passes.
	last := *now
	*now = last.Add(time.Hour - 10*time.Millisecond)
	if d, _ := e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: "1"}); d.Allowed || d.RetryAfter != time.Millisecond {
		t.Errorf("allowed %v, retry after %v, want 1 ms", d.Allowed, d.RetryAfter)
	}
	*now = now.Add(time.Millisecond)
	if d, _ := e.Check(t.Context(), limiter.Demand{Policy: "p", Identifier: "1"}); !d.Allowed {
		t.Errorf("denied: %+v", d.Verdict)
	}
}

// TestClockThatStepsAheadAndBackForgetsNothing makes a request while the wall
// clock is an hour ahead; the monotonic clock goes on as ever. What is in a cell drains
// by the engine's clock, and is no business of the store's.
func TestClockThatStepsAheadAndBackForgetsNothing(t *testing.T) {
	const full = 32 // a power of two: the next event finds a log with no room left, which makes some
	for _, algorithm := range policy.Algorithms() {
		if (policy.Limit{Algorithm: algorithm}).InCell() {
			continue
		}
		ahead := time.Duration(0)
		store := embedded.New(nil)
		e := limiter.New(store, &limiter.Options{Now: func() time.Time { return time.Now().Add(ahead) }})
		if err := e.SetPolicies([]policy.Policy{policyOf(algorithm, full, time.Minute)}); err != nil {
			t.Fatal(err)
		}
		for range full {
			if d, err := take(t, e, 1); err != nil || !d.Allowed {
				t.Fatalf("%s: %+v, %v", algorithm, d.Verdict, err)
			}
		}
		ahead = time.Hour
		if _, err := take(t, e, 1); err != nil {
			t.Fatal(err)
		}
		ahead = 0
		if d, err := take(t, e, 1); err != nil || d.Allowed {
			t.Errorf("%s: admitted after the clock's return: %+v, %v", algorithm, d.Verdict, err)
		}
	}
}
