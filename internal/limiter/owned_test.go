package limiter_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// owners says of all keys what a test wants: this instance owns them, unless another is given.
type owners struct {
	term  owner.Term
	other demand.Peer

	mu   sync.Mutex
	hold chan struct{} // the next question for a key's owner waits for it
}

// sole is the term of an owner of all keys.
type sole struct{ began time.Time }

func (s *sole) Owned() bool                  { return true }
func (s *sole) Began() time.Time             { return s.began }
func (s *sole) Verify(context.Context) error { return nil }
func (s *sole) Verified() time.Time          { return time.Now() }
func (s *sole) Leave()                       {}

func (s *sole) IsNew(store.Key, time.Duration) bool { return false }
func (s *sole) Note(store.Key, time.Duration) error { return nil }

// everyones is the term of each instance where all decide for every key.
type everyones struct{}

func (everyones) Owned() bool                  { return false }
func (everyones) Began() time.Time             { return time.Time{} }
func (everyones) Verify(context.Context) error { return nil }
func (everyones) Verified() time.Time          { return time.Time{} }
func (everyones) Leave()                       {}

func (everyones) IsNew(store.Key, time.Duration) bool { return false }
func (everyones) Note(store.Key, time.Duration) error { return nil }

func ownsAll() *owners { return &owners{term: &sole{}} }

func (o *owners) Place(context.Context, store.Key) (demand.Place, error) {
	o.mu.Lock()
	hold := o.hold
	o.hold = nil
	o.mu.Unlock()
	if hold != nil {
		<-hold
	}
	if o.other != nil {
		return demand.Place{Owner: o.other}, nil
	}
	return demand.Place{Term: o.term}, nil
}

// handOn makes e decide c as if a message had carried it.
func handOn(ctx context.Context, e *limiter.Engine, c *demand.Charge) error {
	there := demand.Charge{
		Target: demand.Target{Key: c.Key, OldKeys: c.OldKeys}, Definition: c.Definition, Op: c.Op, Cost: c.Cost, Hold: c.Hold, ID: c.ID,
		Prepare: c.Prepare, AtOnce: c.AtOnce, View: c.View, Back: c.Back,
	}
	err := e.DecideForPeer(ctx, &there)
	if err == nil {
		c.Decision, c.Steady = there.Decision, there.Steady
	}
	return err
}

func (o *owners) PlaceFor(context.Context, store.Key, int64) (owner.Term, error) {
	return o.term, nil
}

func logOf(limit int64) policy.Policy {
	return policy.Policy{Name: "log", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: limit, Window: time.Hour}}}
}

// ownerOf returns an engine with one policy that decides by o.
func ownerOf(t testing.TB, store store.Store, o demand.Owners, opts limiter.Options, p policy.Policy) *limiter.Engine {
	t.Helper()
	opts.Owners = o
	e := limiter.New(store, &opts)
	if err := e.SetPolicies([]policy.Policy{p}); err != nil {
		t.Fatal(err)
	}
	return e
}

// takeOne reports whether a unit is admitted.
func takeOne(ctx context.Context, e *limiter.Engine) (admitted bool, err error) {
	d, err := e.Take(ctx, limiter.Demand{Policy: "log", Identifier: "id"})
	return err == nil && d.Allowed, err
}

// TestMemoryEndsWithItsPolicy checks that the memory of a policy is not used once units were
// counted under another one that it does not serve: a call that began before the reload is still
// decided under the earlier one.
func TestMemoryEndsWithItsPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, o := newFakeStore(), ownsAll()
		e := ownerOf(t, s, o, limiter.Options{}, logOf(3))
		var admitted atomic.Int64
		take := func() {
			if ok, _ := takeOne(t.Context(), e); ok {
				admitted.Add(1)
			}
		}
		take()
		late := make(chan struct{})
		o.hold = late
		var all sync.WaitGroup
		all.Go(take) // by the first policy, but not yet
		synctest.Wait()
		s.set(func() { s.writeTakes = 50 * time.Millisecond })
		all.Go(take) // by the first policy
		synctest.Wait()
		if err := e.SetPolicies([]policy.Policy{logOf(4)}); err != nil {
			t.Fatal(err)
		}
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				if len(w.Remove) > 0 {
					return store.ErrUnavailable
				}
				return nil
			}
		})
		for range 3 { // together, by the second: two fit
			all.Go(take)
		}
		time.Sleep(200 * time.Millisecond)
		close(late)
		all.Wait()
		if n := admitted.Load(); n > 4 {
			t.Errorf("%d units are admitted, limit 4", n)
		}
	})
}

// TestMemoryServesPlansThatCountInTheSamePlaces holds that two definitions of a policy, by which calls are decided in turn,
// share what an owner remembers: it reads the key once for both, and no more units pass than the larger one admits.
func TestMemoryServesPlansThatCountInTheSamePlaces(t *testing.T) {
	limits := func(limits ...policy.Limit) policy.Policy { return policy.Policy{Name: "log", Limits: limits} }
	limit := func(algorithm string, units int64, window time.Duration) policy.Limit {
		return policy.Limit{Name: algorithm + window.String(), Algorithm: algorithm, Limit: units, Window: window}
	}
	window := func(units int64, window time.Duration) policy.Limit {
		return policy.Limit{Name: "window", Algorithm: "sliding-log", Limit: units, Window: window}
	}
	for name, c := range map[string]struct {
		one, other policy.Policy
		admits     int    // by the larger
		reads      [2]int // after the first take, under guarantee counted and local: one if the first plan needs less
	}{
		"a larger log":  {logOf(3), logOf(5), 5, [2]int{1, 1}},
		"a smaller log": {logOf(5), logOf(3), 5, [2]int{}},
		"windows":       {limits(limit("fixed-window", 3, time.Hour)), limits(limit("fixed-window", 5, time.Hour)), 5, [2]int{}},
		"a tail":        {limits(limit("sliding-tail", 5, time.Hour)), limits(limit("sliding-tail", 3, time.Hour)), 5, [2]int{}},
		"a longer log":  {limits(window(4, 2*time.Hour)), limits(window(4, 3*time.Hour)), 4, [2]int{1, 11}},
		"logs of which each needs": {
			limits(limit("sliding-log", 3, time.Hour), limit("sliding-log", 9, 240*time.Hour)),
			limits(limit("sliding-log", 5, time.Hour), limit("sliding-log", 6, 240*time.Hour)), 5, [2]int{1, 1},
		},
	} {
		for by, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
			t.Run(name+"/"+string(guarantee), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newFakeStore()
					c.one.Guarantee, c.other.Guarantee = guarantee, guarantee
					e := ownerOf(t, s, ownsAll(), limiter.Options{}, c.one)
					admitted, before := 0, 0
					for i := range 12 {
						if err := e.SetPolicies([]policy.Policy{[]policy.Policy{c.one, c.other}[i%2]}); err != nil {
							t.Fatal(err)
						}
						if ok, err := takeOne(t.Context(), e); err != nil {
							t.Fatal(err)
						} else if ok {
							admitted++
						}
						if i == 0 {
							before, _ = s.counts()
						}
					}
					reads, _ := s.counts()
					if reads -= before; admitted != c.admits || reads != c.reads[by] {
						t.Errorf("%d units admitted and %d reads, want %d and %d", admitted, reads, c.admits, c.reads[by])
					}
				})
			})
		}
	}
}

// TestMemoryDoesNotOutliveAClockSetBack checks that units that were forgotten by a clock that was ahead count once it
// is right again.
func TestMemoryDoesNotOutliveAClockSetBack(t *testing.T) {
	for _, policy := range []policy.Policy{logOf(2), {
		Name: "log", Counting: policy.CountingRows, Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 2, Window: 24 * time.Hour}},
	}} {
		synctest.Test(t, func(t *testing.T) {
			ahead := time.Duration(0)
			store := newFakeStore()
			e := ownerOf(t, store, ownsAll(), limiter.Options{Now: func() time.Time { return time.Now().Add(ahead) }}, policy)
			steps := []struct {
				ahead time.Duration
				want  bool
			}{{0, true}, {0, true}, {0, false}, {25 * time.Hour, true}, {0, false}}
			for i, step := range steps {
				ahead = step.ahead
				if ok, err := takeOne(t.Context(), e); ok != step.want || err != nil {
					t.Errorf("%s: take %d is admitted: %t, error %v; want %t", policy.Limits[0].Algorithm, i, ok, err, step.want)
				}
			}
		})
	}
}

// TestResetByAnOwnerThatIsOutIsUnknown holds that no reset is reported as done if the key's next owner may have read the key
// before it.
func TestResetByAnOwnerThatIsOutIsUnknown(t *testing.T) {
	for _, p := range []policy.Policy{logOf(2), inMemory("token-bucket", 2, time.Hour)} {
		e := ownerOf(t, newFakeStore(), &owners{term: &tenancy{fails: owner.ErrTermEnded}}, limiter.Options{}, p)
		var failed *count.StoreError
		if err := e.Reset(t.Context(), p.Name, "id"); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%s: the error is %v, want one that says unknown", p.Limits[0].Algorithm, err)
		}
	}
}

// TestOwnerDoesNotDenyForLongByWhatIsTakenBack holds that units which were in doubt, and were read
// before they were taken back, deny nobody for the rest of the window.
func TestOwnerDoesNotDenyForLongByWhatIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeStore()
		e := ownerOf(t, s, ownsAll(), limiter.Options{}, logOf(2))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = e.Run(ctx) })
		defer running.Wait()
		defer stop()
		if ok, err := takeOne(t.Context(), e); !ok {
			t.Fatal(err)
		}
		s.set(func() {
			s.onWrite = func(w *store.Write) error {
				_ = s.Store.Write(t.Context(), w)
				return fmt.Errorf("%w: stored, and not said so", store.ErrUnavailable)
			}
		})
		if _, err := takeOne(t.Context(), e); err == nil {
			t.Fatal("a write without an answer has no error")
		}
		s.set(func() { s.onWrite = nil })
		if ok, _ := takeOne(t.Context(), e); ok {
			t.Fatal("units in doubt count while they are not taken back")
		}
		time.Sleep(20 * time.Second)
		if ok, err := takeOne(t.Context(), e); !ok {
			t.Errorf("denied, error %v, though one of two units is counted", err)
		}
		if ok, _ := takeOne(t.Context(), e); ok {
			t.Error("a third unit is admitted, limit 2")
		}
	})
}

// doubtful is the term of an owner that can't learn whether it still holds.
type doubtful struct {
	sole
	asked atomic.Int64
}

func (d *doubtful) Verify(context.Context) error {
	d.asked.Add(1)
	return store.ErrUnavailable
}

// TestWhoCantVerifyWaitsBeforeItAsksAgain holds that a store which fails at once is not asked in a
// tight loop.
func TestWhoCantVerifyWaitsBeforeItAsksAgain(t *testing.T) {
	term := &doubtful{}
	e := ownerOf(t, newFakeStore(), &owners{term: term}, limiter.Options{StoreTimeout: 100 * time.Millisecond}, logOf(2))
	_, err := takeOne(t.Context(), e)
	var failed *count.StoreError
	if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
		t.Errorf("the error is %v, want one that says unknown", err)
	}
	if n := term.asked.Load(); n < 2 || n > 100 {
		t.Errorf("asked %d times within 100ms", n)
	}
}

// TestOwnRowIsReadAfterTheWrite sets an owner out while its unit is written, and holds that it admits nothing.
func TestOwnRowIsReadAfterTheWrite(t *testing.T) {
	s, term := newFakeStore(), &tenancy{}
	e := ownerOf(t, s, &owners{term: term}, limiter.Options{}, logOf(2))
	if ok, err := takeOne(t.Context(), e); !ok {
		t.Fatalf("denied, error %v", err)
	}
	s.onWrite = func(*store.Write) error {
		term.set(func() { term.fails = owner.ErrTermEnded })
		return nil
	}
	_, err := takeOne(t.Context(), e)
	if failed := (*count.StoreError)(nil); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
		t.Errorf("the error is %v, want one that says unknown", err)
	}
}

// TestMemoryOutlivesAClockThatLeapsALittle holds the same for less than anybody would notice.
func TestMemoryOutlivesAClockThatLeapsALittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ahead := time.Duration(0)
		e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{Now: func() time.Time { return time.Now().Add(ahead) }}, logOf(2))
		for _, step := range []struct {
			wait, ahead time.Duration
			want        bool
		}{{0, 0, true}, {0, 0, true}, {time.Hour - 300*time.Millisecond, 900 * time.Millisecond, true}, {0, 0, false}} {
			time.Sleep(step.wait)
			ahead = step.ahead
			if ok, err := takeOne(t.Context(), e); ok != step.want || err != nil {
				t.Errorf("after %v, %v ahead, a take is admitted: %t, error %v; want %t", step.wait, step.ahead, ok, err, step.want)
			}
		}
	})
}

// TestMemoryOfAnyBoundKeepsTheLimit asks for many more keys than an owner remembers, again and again, together and
// alone, and holds that each has its limit and not one more, whatever fell out meanwhile: of units that are
// written first, and of those that are written behind.
func TestMemoryOfAnyBoundKeepsTheLimit(t *testing.T) {
	const limit, callers, asked, most = 3, 400, 6, 128
	var policies []policy.Policy
	for _, algorithm := range writtenBehind() {
		policies = append(policies, inMemory(algorithm, limit, time.Hour))
	}
	for _, algorithm := range writtenFirst() {
		policies = append(policies, policyOf(algorithm, limit, time.Hour))
	}
	for _, policy := range policies {
		t.Run(policy.Limits[0].Algorithm+"/"+string(policy.Guarantee), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeStore()
				e := instanceWith(t, s, &limiter.Options{MaxKeys: 1, Owners: &owners{term: &tenancy{}}}, policy)
				var admitted [callers]atomic.Int64
				var all sync.WaitGroup
				for round := range asked {
					for i := range admitted {
						all.Go(func() {
							d, err := e.Take(t.Context(), limiter.Demand{Policy: policy.Name, Identifier: keys.Identifier(fmt.Sprint("caller ", i))})
							if err != nil {
								t.Error(err)
							}
							if d.Allowed {
								admitted[i].Add(1)
							}
						})
						if round%2 == 0 {
							all.Wait()
						}
					}
					all.Wait()
				}
				for i := range admitted {
					if n := admitted[i].Load(); n != limit {
						t.Errorf("caller %d has %d units, limit %d", i, n, limit)
					}
				}
				if n := e.Remembered(); n == 0 || n > most {
					t.Errorf("%d keys are remembered, want 1 to %d", n, most)
				}
			})
		})
	}
}

// TestColdReadsAreCounted holds that an owner counts the decisions which had to read their key, and no others.
func TestColdReadsAreCounted(t *testing.T) {
	written := inMemory("sliding-log", 3, time.Hour)
	inBucket := inMemory("token-bucket", 3, time.Hour)
	for _, p := range []policy.Policy{logOf(3), written, inBucket} {
		for _, c := range []struct {
			name string
			term owner.Term
			op   count.Op
			want int64
		}{
			{"take by the owner", &sole{}, count.OpTake, 1},
			{"check by the owner", &sole{}, count.OpCheck, 4}, // what a check reads is not kept
			{"take of a key that is new", &tenancy{}, count.OpTake, 0},
			{"take where nobody owns", everyones{}, count.OpTake, 0},
		} {
			if p.Limits[0].Algorithm == "token-bucket" && (c.op == count.OpCheck || c.want == 0) {
				continue // a cell is compared and set, or read whatever is known
			}
			e := ownerOf(t, newFakeStore(), &owners{term: c.term}, limiter.Options{}, p)
			for range 4 {
				if _, err := e.Do(t.Context(), &limiter.Call{Op: c.op, Demands: []limiter.Demand{{Policy: p.Name, Identifier: "id"}}}); err != nil {
					t.Fatal(err)
				}
			}
			if n := e.ColdReads(); n != c.want {
				t.Errorf("%s, %s under %s: %d cold reads of 4 decisions, want %d", c.name, p.Limits[0].Algorithm, p.Guarantee, n, c.want)
			}
		}
	}
}

// TestOwnerKnowsLogsOfSeveralSpans holds that an owner remembers what is in each of a key's logs: of an hour, and of a
// day.
func TestOwnerKnowsLogsOfSeveralSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := logOf(5)
		p.Limits = append(p.Limits, policy.Limit{Algorithm: "sliding-log", Limit: 7, Window: 24 * time.Hour})
		e := ownerOf(t, newFakeStore(), ownsAll(), limiter.Options{}, p)
		for hour, want := range []int{5, 0, 2, 0, 0, 0} {
			admitted := 0
			for range 10 {
				if ok, err := takeOne(t.Context(), e); err != nil {
					t.Fatal(err)
				} else if ok {
					admitted++
				}
			}
			if admitted != want {
				t.Errorf("after %d half hours, %d were admitted, want %d", hour, admitted, want)
			}
			time.Sleep(31 * time.Minute)
		}
	})
}
