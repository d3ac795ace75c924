package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/owner"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/prepared"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/race"
)

// ring is engines that own all keys between them, each of them a part, over one store.
type ring struct {
	store   *fakeStore
	engines []*limiter.Engine
	terms   []owner.Term
	stop    func()

	mu   sync.Mutex
	rng  *rand.Rand
	meet func(c *demand.Charge) (late time.Duration, lost bool) // what a call meets on its way; nil: nothing
}

// newRing returns engines that run until stop is called, which gives back first what waits for that.
func newRing(t *testing.T, n int, policies ...policy.Policy) *ring {
	t.Helper()
	r := &ring{store: newFakeStore(), rng: rand.New(rand.NewPCG(1, 2))}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	for i := range n {
		e := limiter.New(r.store, &limiter.Options{StoreTimeout: timeout, Owners: &ringOwners{r, i}})
		if err := e.SetPolicies(policies); err != nil {
			t.Fatal(err)
		}
		r.engines, r.terms = append(r.engines, e), append(r.terms, &sole{})
		running.Go(func() { _ = e.Run(ctx) })
	}
	return r
}

// ownerOf returns the number of the engine that owns key.
func (r *ring) ownerOf(key store.Key) int { return int(key.Prefix() >> 40 % uint64(len(r.engines))) }

// ownedBy returns the nth of the identifiers that an engine owns under policy.
func (r *ring) ownedBy(t *testing.T, owner int, policy string, nth int) keys.Identifier {
	for i := 0; ; i++ {
		id := keys.Identifier(fmt.Sprint("id", i))
		key, err := r.engines[0].KeyOf(policy, id)
		if err != nil {
			t.Fatal(err)
		}
		if r.ownerOf(key) == owner {
			if nth--; nth < 0 {
				return id
			}
		}
	}
}

func (r *ring) met(c *demand.Charge) (late time.Duration, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meet == nil {
		return time.Duration(r.rng.IntN(2000)) * time.Microsecond, false
	}
	return r.meet(c)
}

// ringOwners are the owners of slots, as one of the engines knows them.
type ringOwners struct {
	ring *ring
	self int
}

func (o *ringOwners) Place(_ context.Context, key store.Key) (demand.Place, error) {
	if n := o.ring.ownerOf(key); n != o.self {
		return demand.Place{Owner: ringPeer{o.ring, n}}, nil
	}
	return demand.Place{Term: o.ring.terms[o.self]}, nil
}

func (o *ringOwners) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) {
	return o.ring.terms[o.self], nil
}

type ringPeer struct {
	ring *ring
	n    int
}

// Decide asks after a while, or loses the answer.
func (p ringPeer) Decide(ctx context.Context, c *demand.Charge) error {
	late, lost := p.ring.met(c)
	time.Sleep(late)
	if ctx.Err() != nil && c.Op == count.OpTake { // it is under way, and nobody waits for it
		ctx = context.WithoutCancel(ctx)
	}
	err := handOn(ctx, p.ring.engines[p.n], c)
	if lost {
		return fmt.Errorf("%w: no answer", store.ErrUnavailable)
	}
	return err
}

func (p ringPeer) Tell(c *demand.Charge) {
	late, lost := p.ring.met(c)
	kept := *c
	if !lost {
		time.AfterFunc(late, func() { _ = handOn(context.Background(), p.ring.engines[p.n], &kept) })
	}
}

func oneLimit(name, algorithm string, limit int64) policy.Policy {
	l := policy.Limit{Algorithm: algorithm, Limit: limit, Window: 24 * time.Hour}
	if algorithm == "sliding-window" {
		l.Buckets = 10
	}
	return policy.Policy{Name: name, Counting: policy.CountingRows, Limits: []policy.Limit{l}}
}

func callOf(demands ...limiter.Demand) *limiter.Call {
	return &limiter.Call{Op: count.OpTake, Demands: demands}
}

// usedOf returns what is used of a key by what is stored.
func (r *ring) usedOf(t *testing.T, pol string, id keys.Identifier) int64 {
	t.Helper()
	p, _ := r.engines[0].Policy(pol)
	e := limiter.New(r.store, nil)
	if err := e.SetPolicies([]policy.Policy{*p}); err != nil {
		t.Fatal(err)
	}
	d, err := e.Check(t.Context(), limiter.Demand{Policy: pol, Identifier: id})
	if err != nil {
		t.Fatal(err)
	}
	return d.Used
}

// sharings are policies that count in every way, of which callers share a key.
func sharings() map[string]policy.Policy {
	counters := oneLimit("shared", "fixed-window", 30)
	counters.Counting = policy.CountingCounters
	both := oneLimit("shared", "sliding-log", 40)
	both.Limits = append(both.Limits, policy.Limit{Name: "b", Algorithm: "fixed-window", Limit: 30, Window: 24 * time.Hour})
	later, sums := oneLimit("shared", "sliding-log", 30), oneLimit("shared", "sliding-tail", 30)
	later.Guarantee, sums.Guarantee = policy.GuaranteeLocal, policy.GuaranteeLocal
	return map[string]policy.Policy{
		"local log": later, "local tail": sums, "local conversion": unconfirmedInMemory("shared", 30),
		"log": oneLimit("shared", "sliding-log", 30), "rows": oneLimit("shared", "fixed-window", 30),
		"tail": oneLimit("shared", "sliding-tail", 30), "window": oneLimit("shared", "sliding-window", 30), "counters": counters, "both": both,
	}
}

// unconfirmedInMemory returns a conversion under guarantee local, as those of the policies against SMS pumping are.
func unconfirmedInMemory(name string, limit int64) policy.Policy {
	p := oneLimit(name, "conversion", limit)
	p.Guarantee, p.Counting = policy.GuaranteeLocal, ""
	p.Limits[0].Unconfirmed, p.Limits[0].MinConversion = true, 50
	return p
}

// cells returns policies that count in cells, of which nothing is aborted.
func cells() map[string]policy.Policy {
	return map[string]policy.Policy{
		"conversion": oneLimit("shared", "conversion", 30), "bucket": oneLimit("shared", "token-bucket", 30),
	}
}

// told is what became of one call on the key that callers share.
type told struct {
	began, ended time.Time
	admitted     bool
	denied       bool // by the key that callers share alone

	id      keys.Identifier // of the caller's own key
	allowed [2]bool         // what is said of the caller's own demand, and of the shared one
}

// TestSeveralDemandsByOwners has many callers share a key, whose calls another demand denies at times, and
// holds that the shared one admits its limit and no more, that no denial rests on a call that was aborted, and
// that nothing of these stays counted.
func TestSeveralDemandsByOwners(t *testing.T) {
	all, seeds := sharings(), uint64(6)
	maps.Copy(all, cells())
	if race.Enabled {
		seeds = 2
	}
	for name, policy := range all {
		for seed := range seeds {
			t.Run(fmt.Sprint(name, seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { shareAKey(t, policy, seed) })
			})
		}
	}
}

// TestCellIsDecidedLast holds that a call with one demand in a cell costs that one compare-and-set, and that nobody reads
// its other keys.
func TestCellIsDecidedLast(t *testing.T) {
	for name, cell := range cells() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRing(t, 3, oneLimit("first", "sliding-log", 10), cell)
				for i := range 4 {
					reads, writes := r.store.counts()
					a, err := r.engines[0].Do(t.Context(), callOf(
						limiter.Demand{Policy: "first", Identifier: "a"}, limiter.Demand{Policy: "shared", Identifier: "all"}))
					if err != nil || !a.Allowed {
						t.Fatalf("%+v, %v", a.Decision, err)
					}
					if r, w := r.store.counts(); i > 0 && (r > reads+1 || w != writes+2) {
						t.Errorf("call %d makes %d reads and %d writes, want one of the cell, and one of each", i, r-reads, w-writes)
					}
				}
			})
		})
	}
}

// TestConversionsInMemoryArePrepared holds that a call with several conversions is decided by their owners from memory, and
// that each counts the calls that pass, in memory and in the store.
func TestConversionsInMemoryArePrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		r := newRing(t, 3, oneLimit("own", "sliding-log", 100), unconfirmedInMemory("range", limit),
			unconfirmedInMemory("country", 2*limit), unconfirmedInMemory("money", 100))
		ask := func(own, rng keys.Identifier) bool {
			t.Helper()
			a, err := r.engines[0].Do(t.Context(), callOf(limiter.Demand{Policy: "own", Identifier: own},
				limiter.Demand{Policy: "range", Identifier: rng}, limiter.Demand{Policy: "country", Identifier: "de"},
				limiter.Demand{Policy: "money", Identifier: "all", Cost: 5}))
			if err != nil {
				t.Fatal(err)
			}
			return a.Allowed
		}
		ask("a", "r0")
		reads, writes := r.store.counts()
		for range limit - 1 {
			ask("a", "r0")
		}
		if r, w := r.store.counts(); r != reads || w != writes+limit-1 {
			t.Errorf("%d reads and %d writes for %d calls, want a row of the log for each", r-reads, w-writes, limit-1)
		}
		for range 4 {
			if ask("a", "r0") {
				t.Error("a call passes beyond the limit of its range")
			}
		}
		for i := range 2 * limit {
			if got, want := ask("a", keys.Identifier(fmt.Sprint("r", i+1))), i < limit; got != want {
				t.Errorf("call %d to another range: allowed %t, want %t by the country", i, got, want)
			}
		}
		time.Sleep(time.Second)
		r.stop()
		for _, of := range []struct {
			policy string
			id     keys.Identifier
			want   int64
		}{
			{"own", "a", 2 * limit}, {"range", "r0", limit}, {"range", "r1", 1}, {"range", "r5", 0},
			{"country", "de", 2 * limit}, {"money", "all", 10 * limit},
		} {
			if used := r.usedOf(t, of.policy, of.id); used != of.want {
				t.Errorf("%d stored of %s %s, want %d", used, of.policy, of.id, of.want)
			}
		}
	})
}

// TestHotCountryDoesNotWaitForItself holds that sixty calls a second for one country, through three instances over a slow store,
// are decided as soon as their own rows are written, before and after the country has got all that it may.
func TestHotCountryDoesNotWaitForItself(t *testing.T) {
	const limit, calls, second = 200, 600, 60
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("own", "sliding-log", 100), unconfirmedInMemory("range", 50),
			unconfirmedInMemory("country", limit), unconfirmedInMemory("money", 1_000_000))
		r.store.readTakes, r.store.writeTakes = 10*time.Millisecond, 10*time.Millisecond
		var all sync.WaitGroup
		var allowed atomic.Int64
		for i := range calls {
			time.Sleep(time.Second / second)
			all.Go(func() {
				began := time.Now()
				a, err := r.engines[i%3].Do(t.Context(), callOf(
					limiter.Demand{Policy: "own", Identifier: keys.Identifier(fmt.Sprint("own", i))},
					limiter.Demand{Policy: "range", Identifier: keys.Identifier(fmt.Sprint("range", i%20))},
					limiter.Demand{Policy: "country", Identifier: "de"}, limiter.Demand{Policy: "money", Identifier: "all", Cost: 75}))
				if took := time.Since(began); err != nil || took > 100*time.Millisecond {
					t.Errorf("call %d takes %v: %v", i, took, err)
				}
				if a.Allowed {
					allowed.Add(1)
				}
			})
		}
		all.Wait()
		if n := allowed.Load(); n != limit {
			t.Errorf("%d calls are allowed, want %d", n, limit)
		}
	})
}

// TestAbortOfAConversionThatIsForgotten holds that a unit is given back in the cell, once, where its owner remembers nothing
// of the key any more, and the store changes the cell the first time without an answer.
func TestAbortOfAConversionThatIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, unconfirmedInMemory("shared", 3), oneLimit("none", "sliding-log", 0))
		shared, none := r.ownedBy(t, 1, "shared", 0), r.ownedBy(t, 0, "none", 0)
		key, err := r.engines[0].KeyOf("shared", shared)
		if err != nil {
			t.Fatal(err)
		}
		var silent atomic.Bool
		var aborts atomic.Int64
		var written atomic.Int64 // cells since the first abort: what was not written yet, and then without the unit
		unanswered := func() error {
			if silent.Load() {
				return store.ErrUnavailable
			}
			return nil
		}
		r.store.set(func() {
			r.store.afterRead = func(*store.State) error { return unanswered() }
			r.store.onWrite = func(w *store.Write) error {
				if aborts.Load() > 0 && w.Cell != nil && written.Add(1) == 2 {
					silent.Store(true)
					time.AfterFunc(2*timeout, func() { silent.Store(false) })
					_ = r.store.Store.Write(context.Background(), w)
				}
				return unanswered()
			}
		})
		r.meet = func(c *demand.Charge) (time.Duration, bool) {
			if c.Op != owner.OpAbort {
				return 0, false
			}
			n := aborts.Add(1)
			r.engines[1].Forget(key)
			return 0, n < 4
		}
		one := limiter.Demand{Policy: "shared", Identifier: shared}
		for range 2 {
			if d, err := r.engines[0].Take(t.Context(), one); err != nil || !d.Allowed {
				t.Fatal(d, err)
			}
		}
		a, err := r.engines[0].Do(t.Context(), callOf(one, limiter.Demand{Policy: "none", Identifier: none}))
		if err != nil || a.Allowed {
			t.Fatalf("%+v, %v", a.Decision, err)
		}
		time.Sleep(30 * time.Second)
		if n := aborts.Load(); n < 4 {
			t.Errorf("asked %d times to give back", n)
		}
		for i, want := range []bool{true, false} {
			if d, err := r.engines[0].Take(t.Context(), one); err != nil || d.Allowed != want {
				t.Errorf("take %d is allowed: %t, %v; want %t", i, d.Allowed, err, want)
			}
		}
	})
}

// TestTwoCellsStandOrFallTogether holds that a cell does not count for a call that another one, which is decided later,
// denies.
func TestTwoCellsStandOrFallTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("first", "conversion", 10), oneLimit("second", "token-bucket", 20))
		both := callOf(limiter.Demand{Policy: "first", Identifier: "a"}, limiter.Demand{Policy: "second", Identifier: "a"})
		if _, err := r.engines[0].Record(t.Context(), limiter.Demand{Policy: "second", Identifier: "a", Cost: 19}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if a, err := r.engines[i].Do(t.Context(), both); err != nil || a.Allowed != (i == 0) {
				t.Fatalf("call %d: %+v, %v", i, a.Decision, err)
			}
		}
		if used := r.usedOf(t, "first", "a"); used != 1 {
			t.Errorf("%d used of the first one, want 1", used)
		}
	})
}

// TestSmallestCellIsFirst holds that no unit has to be given back when the cell with the smallest limit denies, whatever
// the order of the keys and of the demands.
func TestSmallestCellIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("wide", "conversion", 100), oneLimit("tight", "token-bucket", 1))
		r.meet = func(c *demand.Charge) (time.Duration, bool) {
			if c.Op == owner.OpGiveBack {
				t.Error("a unit is given back")
			}
			return 0, false
		}
		for n := range 16 {
			wide := limiter.Demand{Policy: "wide", Identifier: r.ownedBy(t, 1, "wide", n)}
			tight := limiter.Demand{Policy: "tight", Identifier: r.ownedBy(t, 1, "tight", n)}
			for i, want := range []bool{true, false} {
				if a, err := r.engines[2*i].Do(t.Context(), callOf(wide, tight)); err != nil || a.Allowed != want {
					t.Fatalf("call %d: %+v, %v", i, a.Decision, err)
				}
			}
		}
	})
}

func shareAKey(t *testing.T, policy policy.Policy, seed uint64) {
	const callers, calls, limit = 12, 12, 30
	own := oneLimit("own", []string{"sliding-log", "fixed-window"}[seed%2], 1)
	r := newRing(t, 3, policy, own)
	r.store.writeTakes = time.Millisecond
	var mu sync.Mutex
	var history []told
	took := make(map[keys.Identifier]int)
	var all sync.WaitGroup
	for n := range callers {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		all.Go(func() {
			for range calls {
				time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
				id := keys.Identifier(fmt.Sprint("own", rng.IntN(60)))
				call := callOf(limiter.Demand{Policy: "own", Identifier: id}, limiter.Demand{Policy: "shared", Identifier: "all"})
				h := told{began: time.Now()}
				a, err := r.engines[rng.IntN(3)].Do(t.Context(), call)
				h.ended = time.Now()
				if err != nil {
					t.Errorf("a call failed: %v", err)
					continue
				}
				h.admitted, h.denied = a.Allowed, !a.Allowed && a.Demands[0].Allowed
				h.id, h.allowed = id, [2]bool{a.Demands[0].Allowed, a.Demands[1].Allowed}
				mu.Lock()
				history = append(history, h)
				if a.Allowed {
					took[id]++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	r.checkShared(t, history, limit)
	time.Sleep(time.Minute)
	r.stop()
	admitted := 0
	for id, n := range took {
		if n > 1 {
			t.Errorf("%d are admitted for one who may one", n)
		}
		if used := r.usedOf(t, "own", id); used != int64(n) {
			t.Errorf("%d used of a caller's own, %d admitted", used, n)
		}
		admitted += n
	}
	if used := r.usedOf(t, "shared", "all"); used != int64(admitted) {
		t.Errorf("%d used of the shared, %d admitted", used, admitted)
	}
}

// checkShared holds what callers saw of the key that they share against its limit.
func (r *ring) checkShared(t *testing.T, history []told, limit int) {
	t.Helper()
	admitted, denied := 0, 0
	for _, h := range history {
		if h.admitted {
			admitted++
			continue
		}
		if h.denied {
			denied++
		}
		for i, most := range []int{1, limit} {
			sure, before := 0, 0 // admitted of this demand's key
			for _, other := range history {
				if !other.admitted || i == 0 && other.id != h.id {
					continue
				}
				if other.began.Before(h.ended) {
					before++
				}
				if other.ended.Before(h.began) {
					sure++
				}
			}
			if !h.allowed[i] && before < most {
				t.Errorf("demand %d is said to be denied when %d of %d were admitted", i, before, most)
			}
			if h.allowed[i] && sure >= most {
				t.Errorf("demand %d is said to have room when %d of %d were admitted", i, sure, most)
			}
		}
	}
	if admitted != limit || denied == 0 {
		t.Errorf("%d are admitted, limit %d, and %d denied", admitted, limit, denied)
	}
}

// TestDenialWaitsForWhatIsInDoubt checks that a call that is denied only because of one that is not decided waits for
// it: until it is aborted, is committed, or the time is over, which is an error then.
func TestDenialWaitsForWhatIsInDoubt(t *testing.T) {
	for _, far := range []bool{false, true} {
		for _, c := range []struct {
			name    string
			takes   time.Duration // for the other key to be decided
			other   int64         // its limit
			allowed bool
			doubt   bool
		}{
			{"aborted", 100 * time.Millisecond, 0, true, false},
			{"committed", 100 * time.Millisecond, 1, false, false},
			{"neither", 480 * time.Millisecond, 1, false, true},
		} {
			t.Run(fmt.Sprint(c.name, far), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := newRing(t, 2, oneLimit("first", "sliding-log", 1), oneLimit("other", "sliding-log", c.other))
					first, other := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "other", 0)
					r.meet = func(on *demand.Charge) (time.Duration, bool) {
						if on.Definition != nil && on.Definition.Policy == "other" && on.Op == count.OpTake {
							return c.takes, false
						}
						return time.Millisecond, false
					}
					var both sync.WaitGroup
					both.Go(func() {
						_, _ = r.engines[0].Do(t.Context(), callOf(
							limiter.Demand{Policy: "first", Identifier: first}, limiter.Demand{Policy: "other", Identifier: other}))
					})
					time.Sleep(10 * time.Millisecond)
					asks := r.engines[0]
					if far {
						asks = r.engines[1]
					}
					began := time.Now()
					d, err := asks.Take(t.Context(), limiter.Demand{Policy: "first", Identifier: first})
					took := time.Since(began)
					both.Wait()
					var failed *count.StoreError
					if c.doubt != (errors.Is(err, prepared.ErrInDoubt) && errors.As(err, &failed) && failed.Recorded == count.RecordedNo) {
						t.Errorf("the error is %v", err)
					}
					if d.Allowed != c.allowed || took > timeout {
						t.Errorf("allowed %t after %v, want %t", d.Allowed, took, c.allowed)
					}
				})
			})
		}
	}
}

// TestTwoCallsThatMeetAreBothDecided holds that two calls which each have what the other one needs do not wait
// for each other: one passes, and the other one is denied.
func TestTwoCallsThatMeetAreBothDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, oneLimit("first", "sliding-log", 1), oneLimit("other", "sliding-log", 1))
		first, other := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "other", 0)
		r.meet = func(*demand.Charge) (time.Duration, bool) { return 20 * time.Millisecond, false }
		var both sync.WaitGroup
		var mu sync.Mutex
		allowed := 0
		for i := range 2 { // each has its own key at once, and the other one's 20 ms later
			both.Go(func() {
				a, err := r.engines[i].Do(t.Context(), callOf(
					limiter.Demand{Policy: "first", Identifier: first}, limiter.Demand{Policy: "other", Identifier: other}))
				mu.Lock()
				defer mu.Unlock()
				if a.Allowed {
					allowed++
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if allowed != 1 {
			t.Errorf("%d pass, limit 1", allowed)
		}
	})
}

// TestAbortsAreAppliedOnce checks that an abort that is repeated, as its answers are lost, takes effect once.
func TestAbortsAreAppliedOnce(t *testing.T) {
	for name, policy := range sharings() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy.Limits[0].Limit = 3
				r := newRing(t, 2, policy, oneLimit("none", "sliding-log", 0))
				shared, none := r.ownedBy(t, 1, "shared", 0), r.ownedBy(t, 0, "none", 0)
				var lost atomic.Int64
				r.meet = func(c *demand.Charge) (time.Duration, bool) {
					if c.Op != "abort" {
						return 0, false
					}
					n := lost.Add(1)
					return 0, n < 4
				}
				one := limiter.Demand{Policy: "shared", Identifier: shared}
				for range 2 {
					if d, err := r.engines[0].Take(t.Context(), one); err != nil || !d.Allowed {
						t.Fatal(d, err)
					}
				}
				r.store.set(func() { r.store.writeTakes = 0 })
				a, err := r.engines[0].Do(t.Context(), callOf(one, limiter.Demand{Policy: "none", Identifier: none}))
				if err != nil || a.Allowed {
					t.Fatalf("%+v, %v", a.Decision, err)
				}
				time.Sleep(30 * time.Second)
				if n := lost.Load(); n < 4 {
					t.Errorf("asked %d times to give back", n)
				}
				for i, want := range []bool{true, false} {
					if d, err := r.engines[0].Take(t.Context(), one); err != nil || d.Allowed != want {
						t.Errorf("take %d is allowed: %t, %v; want %t", i, d.Allowed, err, want)
					}
				}
			})
		})
	}
}

// TestAbortMayComeFirst checks that a unit that is aborted before it comes is not counted then.
func TestAbortMayComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 1, oneLimit("first", "sliding-log", 1))
		e, id := r.engines[0], r.ownedBy(t, 0, "first", 0)
		key, err := e.KeyOf("first", id)
		if err != nil {
			t.Fatal(err)
		}
		c := demand.Charge{Op: "abort", Prepare: store.NewEventIDs().Next(store.InstantOf(time.Now()))}
		c.Key = key
		if err := e.DecideForPeer(t.Context(), &c); err != nil {
			t.Fatal(err)
		}
		c.Op, c.Cost, c.Definition = count.OpTake, 1, limiter.DefinitionOf(e, "first")
		var failed *count.StoreError
		err = e.DecideForPeer(t.Context(), &c)
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedNo {
			t.Errorf("the error is %v, want one that says that nothing is counted", err)
		}
		if d, err := e.Take(t.Context(), limiter.Demand{Policy: "first", Identifier: id}); err != nil || !d.Allowed {
			t.Errorf("denied, error %v, though nothing is counted", err)
		}
	})
}

// TestUnitsOfWhoIsGoneCount checks that a unit that is neither committed nor aborted counts, and is in doubt for a
// while only.
func TestUnitsOfWhoIsGoneCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, oneLimit("first", "sliding-log", 1), oneLimit("other", "sliding-log", 1))
		first, other := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "other", 0)
		r.meet = func(c *demand.Charge) (time.Duration, bool) { return 0, c.Op == "commit" }
		a, err := r.engines[1].Do(t.Context(), callOf(
			limiter.Demand{Policy: "first", Identifier: first}, limiter.Demand{Policy: "other", Identifier: other}))
		if err != nil || !a.Allowed {
			t.Fatalf("%+v, %v", a.Decision, err)
		}
		one := limiter.Demand{Policy: "first", Identifier: first}
		if _, err := r.engines[0].Take(t.Context(), one); !errors.Is(err, prepared.ErrInDoubt) {
			t.Errorf("the error is %v, want one of doubt", err)
		}
		time.Sleep(5 * timeout)
		if d, err := r.engines[0].Take(t.Context(), one); err != nil || d.Allowed {
			t.Errorf("allowed %t, %v; want a denial", d.Allowed, err)
		}
	})
}

// TestOwnersAreNotReadForSeveralDemands holds that a call of several demands writes a row for each, and reads
// nothing once the keys are known.
func TestOwnersAreNotReadForSeveralDemands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 3, oneLimit("first", "sliding-log", 10), oneLimit("other", "fixed-window", 10))
		for i := range 4 {
			reads, writes := r.store.counts()
			a, err := r.engines[0].Do(t.Context(), callOf(
				limiter.Demand{Policy: "first", Identifier: "a"}, limiter.Demand{Policy: "other", Identifier: "b"}))
			if err != nil || !a.Allowed {
				t.Fatalf("%+v, %v", a.Decision, err)
			}
			if r, w := r.store.counts(); i > 0 && (r != reads || w != writes+2) {
				t.Errorf("call %d makes %d reads and %d writes, want 0 and 2", i, r-reads, w-writes)
			}
		}
	})
}

// TestWhatCountsThoughOthersDeny holds that denied attempts count where they are to, that a policy in shadow
// denies nobody, and that records are made whatever the limits.
func TestWhatCountsThoughOthersDeny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		every, shadow := oneLimit("every", "sliding-log", 5), oneLimit("shadow", "sliding-log", 1)
		every.Count, shadow.Mode = policy.CountAll, policy.ModeShadow
		r := newRing(t, 3, every, shadow, oneLimit("few", "sliding-log", 2))
		call := callOf(limiter.Demand{Policy: "every", Identifier: "a"}, limiter.Demand{Policy: "shadow", Identifier: "a"},
			limiter.Demand{Policy: "few", Identifier: "a"})
		for i, want := range []bool{true, true, false} {
			if a, err := r.engines[i].Do(t.Context(), call); err != nil || a.Allowed != want {
				t.Fatalf("take %d: allowed %t, %v; want %t", i, a.Allowed, err, want)
			}
		}
		call.Op = count.OpRecord
		if a, err := r.engines[0].Do(t.Context(), call); err != nil || a.Recorded != count.RecordedYes {
			t.Fatalf("%+v, %v", a.Decision, err)
		}
		for policy, want := range map[string]int64{"every": 4, "shadow": 2, "few": 3} {
			if used := r.usedOf(t, policy, "a"); used != want {
				t.Errorf("%s: %d used, want %d", policy, used, want)
			}
		}
	})
}

// TestNobodyIsAskedForWhoIsGone checks that a caller that goes away while its take is in doubt is not asked for again.
func TestNobodyIsAskedForWhoIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRing(t, 2, oneLimit("first", "sliding-log", 1), oneLimit("other", "sliding-log", 1))
		first, other := r.ownedBy(t, 0, "first", 0), r.ownedBy(t, 1, "other", 0)
		r.meet = func(c *demand.Charge) (time.Duration, bool) { return 0, c.Op == "commit" }
		if _, err := r.engines[1].Do(t.Context(), callOf(
			limiter.Demand{Policy: "first", Identifier: first}, limiter.Demand{Policy: "other", Identifier: other})); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		began := time.Now()
		_, err := r.engines[0].Take(ctx, limiter.Demand{Policy: "first", Identifier: first})
		if took := time.Since(began); !errors.Is(err, prepared.ErrInDoubt) || took > 20*time.Millisecond {
			t.Errorf("the error is %v after %v, want one of doubt as soon as the caller is gone", err, took)
		}
	})
}

// TestLocalIsWrittenBeforeItIsAborted holds that under guarantee local nothing is taken out of what is stored
// before it is there: should its owner die then, what others were admitted for would lack a unit.
func TestLocalIsWrittenBeforeItIsAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := oneLimit("shared", "sliding-tail", 30)
		shared.Guarantee = policy.GuaranteeLocal
		r := newRing(t, 1, shared, oneLimit("own", "sliding-log", 1))
		call := callOf(limiter.Demand{Policy: "own", Identifier: "id"}, limiter.Demand{Policy: "shared", Identifier: "all"})
		if a, err := r.engines[0].Do(t.Context(), call); err != nil || !a.Allowed {
			t.Fatalf("the first call: %+v, error %v", a, err)
		}
		time.Sleep(2 * demand.DefaultSyncInterval)
		if a, err := r.engines[0].Do(t.Context(), call); err != nil || a.Allowed {
			t.Fatalf("the second call: %+v, error %v", a, err)
		}
		if used := r.usedOf(t, "shared", "all"); used != 1 {
			t.Errorf("%d are stored, want the first call's", used)
		}
	})
}
