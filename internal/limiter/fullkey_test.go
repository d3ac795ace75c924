package limiter_test

import (
	"context"
	"math/rand/v2"
	"reflect"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// askedStore is a store in memory that counts what it is asked by takes, and has something
// done before it changes several keys.
type askedStore struct {
	*embedded.Store
	asked  atomic.Int64
	before func()
}

func (s *askedStore) Update(ctx context.Context, q *limiter.Query, decide func(*limiter.State, *limiter.Write)) error {
	s.asked.Add(1)
	return s.Store.Update(ctx, q, decide)
}

func (s *askedStore) UpdateAll(ctx context.Context, q []limiter.Query, decide func([]limiter.State, []limiter.Write)) error {
	if s.before != nil {
		s.before()
	}
	return s.Store.UpdateAll(ctx, q, decide)
}

// pairOfEngines returns an engine by a clock that the test turns, and one that
// remembers nothing over a store of its own.
func pairOfEngines(t *testing.T, policy limiter.Policy) (e, plain *limiter.Engine, asked *askedStore, at *time.Time) {
	t.Helper()
	at = new(time.Time)
	*at = time.Now().Truncate(time.Hour)
	now := func() time.Time { return *at }
	options := limiter.Options{Now: now}
	asked = &askedStore{Store: embedded.New(&embedded.Options{Now: now})}
	e = limiter.New(asked, &options)
	plain = limiter.New(embedded.New(&embedded.Options{Now: now}), options.Simulated(nil, true))
	for _, engine := range []*limiter.Engine{e, plain} {
		if err := engine.SetPolicies([]limiter.Policy{policy}); err != nil {
			t.Fatal(err)
		}
	}
	return e, plain, asked, at
}

// Who is over a limit is denied without the store, and told the same.
func TestFullKeysAskNobody(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window"} {
		e, plain, asked, at := pairOfEngines(t, policyOf(algorithm, 3, time.Hour))
		for range 3 {
			*at = at.Add(time.Minute)
			mustTake(t, e)
			mustTake(t, plain)
		}
		mustTake(t, e)
		before := asked.asked.Load()
		for range 10 {
			*at = at.Add(3 * time.Second)
			same(t, "a take", mustTake(t, e), mustTake(t, plain))
		}
		if got := asked.asked.Load(); got != before {
			t.Errorf("%s: asked %d times of a key that is full", algorithm, got-before)
		}
	}
}

// same fails unless two engines said the same.
func same(t *testing.T, what string, got, want limiter.Decision) {
	t.Helper()
	told := func(d limiter.Decision) (all []any) {
		all = append(all, d.Verdict, d.Tightest, d.WouldAllow, d.Degraded, d.Blocked, d.Override, d.Recorded)
		for _, l := range d.Limits() {
			all = append(all, *l.Limit, l.Verdict)
		}
		return all
	}
	if !reflect.DeepEqual(told(got), told(want)) {
		t.Fatalf("%s: %+v\nwant %+v", what, told(got), told(want))
	}
}

// What is remembered changes no answer, whatever comes between: takes, checks and records of
// other costs, refunds, resets, holds and reloads, and clocks that step back.
func TestFullKeysAreDeniedAsJudged(t *testing.T) {
	for _, algorithm := range limiter.Algorithms() {
		t.Run(algorithm, func(t *testing.T) {
			remembered := 0
			for range 15 {
				seed := rand.Uint64()
				remembered += compareEngines(t, algorithm, seed)
			}
			if steady := !policyOf(algorithm, 1, time.Minute).Limits[0].InCell(); steady != (remembered > 50) {
				t.Errorf("%d answers without the store", remembered)
			}
		})
	}
}

// compareEngines has two engines of the same policy do the same at random, and returns how
// often the one that remembers asked less.
func compareEngines(t *testing.T, algorithm string, seed uint64) (remembered int) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	policy := policyOf(algorithm, rnd.Int64N(7), time.Minute)
	if seed%4 == 0 && !policy.Limits[0].InCell() {
		policy.Count = limiter.CountAll
	}
	e, plain, asked, at := pairOfEngines(t, policy)
	type given struct{ here, there string } // by each engine
	var receipts, reservations []given
	for step := range 400 {
		what := "seed " + strconv.FormatUint(seed, 10) + ", step " + strconv.Itoa(step)
		*at = at.Add(time.Duration(rnd.Int64N(int64(4*time.Second))) - 200*time.Millisecond)
		switch call := rnd.IntN(20); {
		case call < 17:
			op := []limiter.Op{limiter.OpTake, limiter.OpTake, limiter.OpTake, limiter.OpTake, limiter.OpCheck, limiter.OpRecord}[rnd.IntN(6)]
			c := limiter.Call{Op: op, Demands: []limiter.Demand{somebody}}
			c.Demands[0].Cost = 1 + rnd.Int64N(max(1, min(2, policy.Limits[0].Limit)))
			if op == limiter.OpCheck && algorithm == "sliding-log" && rnd.IntN(3) == 0 { // others' holds end by the real clock
				c.Reserve = time.Duration(1+rnd.Int64N(20)) * time.Second
			}
			before := asked.asked.Load()
			got, err := e.Do(t.Context(), &c)
			want, wantErr := plain.Do(t.Context(), &c)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: %v, want %v", what, err, wantErr)
			}
			if err == nil {
				same(t, what, got.Decision, want.Decision)
			}
			if got.Receipt != "" {
				receipts = append(receipts, given{got.Receipt, want.Receipt})
			}
			if got.Reservation != "" {
				reservations = append(reservations, given{got.Reservation, want.Reservation})
			}
			if asked.asked.Load() == before && !got.Allowed {
				remembered++
			}
		case call == 17 && len(receipts) > 0:
			one := receipts[rnd.IntN(len(receipts))]
			err, wantErr := e.Refund(t.Context(), one.here), plain.Refund(t.Context(), one.there)
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: a refund: %v, want %v", what, err, wantErr)
			}
		case call == 18 && rnd.IntN(2) == 0 && len(reservations) > 0:
			one := reservations[rnd.IntN(len(reservations))]
			_, err := e.Do(t.Context(), &limiter.Call{Op: limiter.OpRecord, Reservation: one.here})
			_, wantErr := plain.Do(t.Context(), &limiter.Call{Op: limiter.OpRecord, Reservation: one.there})
			if (err == nil) != (wantErr == nil) {
				t.Fatalf("%s: a settled reservation: %v, want %v", what, err, wantErr)
			}
		case call == 18 && rnd.IntN(4) == 0:
			for _, engine := range []*limiter.Engine{e, plain} {
				if err := engine.Reset(t.Context(), "p", somebody.Identifier); err != nil {
					t.Fatal(err)
				}
			}
		case call == 19 && rnd.IntN(4) == 0:
			policy.Limits[0].Limit = rnd.Int64N(7)
			for _, engine := range []*limiter.Engine{e, plain} {
				if err := engine.SetPolicies([]limiter.Policy{policy}); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return remembered
}

// Where several limits decide, all of them are looked at each time.
func TestKeysOfSeveralLimitsAreNotRemembered(t *testing.T) {
	policy := policyOf("sliding-log", 3, time.Hour)
	policy.Limits = append(policy.Limits, limiter.Limit{Algorithm: "fixed-window", Limit: 2, Window: time.Minute})
	e, plain, _, at := pairOfEngines(t, policy)
	for range 200 {
		*at = at.Add(17 * time.Second)
		same(t, "a take", mustTake(t, e), mustTake(t, plain))
	}
}

// What is judged while a reset is under way is not remembered beyond it.
func TestFullKeyThatIsJudgedDuringAReset(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window"} {
		e, _, asked, at := pairOfEngines(t, policyOf(algorithm, 1, time.Hour))
		mustTake(t, e)
		asked.before = func() {
			if d := mustTake(t, e); d.Allowed {
				t.Error("before it was reset")
			}
		}
		if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
			t.Fatal(err)
		}
		asked.before = nil
		*at = at.Add(time.Second)
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("%s: %+v: want it allowed after the reset", algorithm, d)
		}
	}
}

// Nothing that is taken, refunded and reset at the same time leaves behind what is no longer
// true.
func TestFullKeysAtTheSameTime(t *testing.T) {
	for _, algorithm := range []string{"sliding-log", "fixed-window"} {
		store := embedded.New(nil)
		options := limiter.Options{}
		e, other := limiter.New(store, &options), limiter.New(store, options.Simulated(nil, true))
		for _, engine := range []*limiter.Engine{e, other} {
			if err := engine.SetPolicies([]limiter.Policy{policyOf(algorithm, 3, time.Hour)}); err != nil {
				t.Fatal(err)
			}
		}
		for round := range 300 {
			var all sync.WaitGroup
			receipts := make(chan string, 1000)
			for range 4 {
				all.Go(func() {
					for range 20 {
						if a := takeAs(t, e, somebody.Identifier, 1); a.Receipt != "" {
							receipts <- a.Receipt
						}
						if rand.IntN(4) == 0 {
							select {
							case receipt := <-receipts:
								if err := e.Refund(t.Context(), receipt); err != nil {
									t.Error(err)
								}
							default:
							}
						}
					}
				})
			}
			all.Wait()
			got, want := mustCheck(t, e), mustCheck(t, other)
			if got.Used != want.Used || got.Allowed != want.Allowed {
				t.Fatalf("%s, round %d: %+v\nwant %+v", algorithm, round, got.Verdict, want.Verdict)
			}
			if round%3 == 0 {
				if err := e.Reset(t.Context(), "p", somebody.Identifier); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}
