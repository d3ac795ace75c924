package docs_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

const (
	units  = 5
	window = 10 * time.Second
	burst  = 8
)

// TestWhatEachAlgorithmAdmits sends random crowds, and compares the units that passed in any interval of a window's
// length, and in each fixed window, with the table of guarantees.md.
func TestWhatEachAlgorithmAdmits(t *testing.T) {
	for _, test := range []struct {
		limit         policy.Limit
		any, inWindow int // at most, in any interval of the window's length and in each fixed window
	}{
		{policy.Limit{Algorithm: "sliding-log"}, units, units},
		{policy.Limit{Algorithm: "fixed-window"}, 2 * units, units},
		{policy.Limit{Algorithm: "sliding-window", Buckets: 5}, 2 * units, 2 * units},
		{policy.Limit{Algorithm: "sliding-tail"}, 2 * units, units},
		{policy.Limit{Algorithm: "sliding-tail", Rounding: policy.RoundUp}, 2 * units, units},
		{policy.Limit{Algorithm: "leaky-bucket"}, 2 * units, 2 * units},
		{policy.Limit{Algorithm: "token-bucket", Burst: burst}, burst + units, burst + units},
	} {
		test.limit.Limit, test.limit.Window = units, window
		t.Run(test.limit.Algorithm+string(test.limit.Rounding), func(t *testing.T) {
			inAny, inWindow := 0, 0
			for seed := range uint64(100) {
				admitted := admittedOf(t, test.limit, rand.New(rand.NewPCG(seed, 0)))
				inAny, inWindow = max(inAny, mostWithin(admitted)), max(inWindow, mostInAWindow(admitted))
				if inAny > test.any || inWindow > test.inWindow {
					t.Fatalf("seed %d: %d in %v and %d in a fixed window, want at most %d and %d",
						seed, inAny, window, inWindow, test.any, test.inWindow)
				}
			}
			if inAny < units {
				t.Errorf("no more than %d of %d were ever admitted", inAny, units)
			}
		})
	}
}

// admittedOf returns the times of a crowd's admitted takes.
func admittedOf(t *testing.T, l policy.Limit, r *rand.Rand) (admitted []store.Instant) {
	t.Helper()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	clock := func() time.Time { return now }
	s := embedded.New(&embedded.Options{Now: clock})
	e := engineOver(t, s, &limiter.Options{Now: clock}, policy.Policy{Name: "p", Limits: []policy.Limit{l}})
	for range 400 {
		switch r.IntN(4) {
		case 0:
			now = now.Add(time.Duration(r.IntN(9000)) * time.Millisecond)
		case 1:
			now = now.Add(time.Duration(r.IntN(300)) * time.Millisecond)
		}
		d, err := e.Take(t.Context(), somebody("p"))
		if err != nil {
			t.Fatal(err)
		}
		if d.Allowed {
			admitted = append(admitted, store.InstantOf(now))
		}
	}
	return admitted
}

func mostWithin(admitted []store.Instant) (most int) {
	first := 0
	for i, at := range admitted {
		for at.Sub(admitted[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

func mostInAWindow(admitted []store.Instant) (most int) {
	in := make(map[int64]int)
	for _, at := range admitted {
		number := int64(at) / window.Milliseconds()
		in[number]++
		most = max(most, in[number])
	}
	return most
}

// apart is the connection of one process to a store that it shares with others.
type apart struct {
	store store.Store

	mu    sync.Mutex                 // held while fails is called
	fails func(w *store.Write) error // nil: no write fails
}

func (a *apart) Read(ctx context.Context, q *store.Query) (store.State, error) {
	return a.store.Read(ctx, q)
}

func (a *apart) Write(ctx context.Context, w *store.Write) error {
	if err := a.failure(w); err != nil {
		return err
	}
	return a.store.Write(ctx, w)
}

func (a *apart) WriteEach(ctx context.Context, w []store.Write, wrote func(int, error)) {
	store.OneByOne(ctx, a, w, wrote)
}

func (a *apart) WriteThenRead(ctx context.Context, w *store.Write, q *store.Query) (store.State, bool, error) {
	return store.InTwoSteps(ctx, a, w, q)
}

func (a *apart) failure(w *store.Write) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fails == nil {
		return nil
	}
	return a.fails(w)
}

var errGone = fmt.Errorf("%w: %w: the process is gone", store.ErrUnavailable, store.ErrNotStored)

func engineOver(t *testing.T, store store.Store, opts *limiter.Options, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, opts)
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

func somebody(policy string) limiter.Demand {
	return limiter.Demand{Policy: policy, Identifier: "somebody"}
}

func policyOf(name, algorithm string, n int64, w time.Duration) policy.Policy {
	return policy.Policy{Name: name, Limits: []policy.Limit{{Algorithm: algorithm, Limit: n, Window: w}}}
}

func do(t *testing.T, e *limiter.Engine, call limiter.Call) limiter.Answer {
	t.Helper()
	answer, err := e.Do(t.Context(), &call)
	if err != nil {
		t.Fatalf("%s: %v", call.Op, err)
	}
	return answer
}

func wantUsed(t *testing.T, e *limiter.Engine, policy string, want int64, when string) {
	t.Helper()
	d, err := e.Check(t.Context(), somebody(policy))
	if err != nil {
		t.Fatal(err)
	}
	if d.Used != want {
		t.Errorf("%s: used %d %s, want %d", policy, d.Used, when, want)
	}
}

// TestOrphanStaysCharged lets a process die after the denial of a call, before it removes the units of the call's other
// demand: too few pass until the window ends.
func TestOrphanStaysCharged(t *testing.T) {
	for _, algorithm := range []string{"fixed-window", "sliding-log"} {
		synctest.Test(t, func(t *testing.T) {
			shared := embedded.New(nil)
			policies := []policy.Policy{policyOf("counted", algorithm, 5, 24*time.Hour), policyOf("full", "sliding-log", 1, time.Hour)}
			adds := 0
			dying := engineOver(t, &apart{store: shared, fails: func(w *store.Write) error {
				if len(w.Add)+len(w.Put) > 0 {
					adds++
				}
				if adds > 1 || len(w.Remove) > 0 { // these give units back
					return errGone
				}
				return nil
			}}, nil, policies...)
			living := engineOver(t, &apart{store: shared}, nil, policies...)
			if _, err := living.Take(t.Context(), somebody("full")); err != nil {
				t.Fatal(err)
			}
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody("counted"), somebody("full")}}
			if answer, err := dying.Do(t.Context(), &call); err == nil && answer.Allowed {
				t.Error("a call passed beside a demand that was full")
			}
			time.Sleep(time.Minute)
			wantUsed(t, living, "counted", 1, "by an orphan")
			time.Sleep(24 * time.Hour)
			wantUsed(t, living, "counted", 0, "a window later")
		})
	}
}

// TestRecordOfSeveralIsNotUndone lets the store refuse one of two demands.
func TestRecordOfSeveralIsNotUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused := &apart{store: embedded.New(nil)}, false
		s.fails = func(*store.Write) error {
			if refused {
				return nil
			}
			refused = true
			return errGone
		}
		e := engineOver(t, s, nil, policyOf("p", "fixed-window", 5, time.Hour), policyOf("q", "fixed-window", 5, time.Hour))
		call := limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody("p"), somebody("q")}}
		_, err := e.Do(t.Context(), &call)
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v: want unknown, because a part counts", err)
		}
	})
}

// TestIdempotencyKeysAreKnownLongEnough repeats calls shortly before and after their
// keys are forgotten.
func TestIdempotencyKeysAreKnownLongEnough(t *testing.T) {
	for longest, known := range map[time.Duration]time.Duration{time.Minute: 10 * time.Minute, 24 * time.Hour: 24 * time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			e := engineOver(t, &apart{store: embedded.New(nil)}, nil, policyOf("p", "sliding-log", 5, longest))
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody("p")}, IdempotencyKey: "key"}
			do(t, e, call)
			time.Sleep(known - time.Second)
			if answer := do(t, e, call); !answer.Replayed {
				t.Errorf("a window of %v: the key was forgotten before %v had passed", longest, known)
			}
			time.Sleep(5 * time.Second)
			if answer := do(t, e, call); answer.Replayed {
				t.Errorf("a window of %v: the key is known longer than %v", longest, known)
			}
		})
	}
}

// TestReservationOfADeadProcess checks that its units stay charged in a counter until the window ends.
func TestReservationOfADeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := embedded.New(nil)
		var dead atomic.Bool
		policy := policyOf("p", "fixed-window", 5, 24*time.Hour)
		dying := engineOver(t, &apart{store: shared, fails: func(*store.Write) error {
			if dead.Load() {
				return errGone
			}
			return nil
		}}, nil, policy)
		living := engineOver(t, &apart{store: shared}, nil, policy)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = dying.Run(ctx) })
		defer running.Wait()
		defer stop()
		held := do(t, dying, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody("p")}, Reserve: 2 * time.Second})
		if held.Reservation == "" {
			t.Fatalf("no units are held: %+v", held.Decision)
		}
		dead.Store(true)
		time.Sleep(time.Minute)
		wantUsed(t, living, "p", 1, "after the end of a dead process's reservation")
		time.Sleep(24 * time.Hour)
		wantUsed(t, living, "p", 0, "a window later")
	})
}
