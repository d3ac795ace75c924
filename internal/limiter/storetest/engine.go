package storetest

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Engine is a limiter.Engine over a store under test, with a clock that the test sets.
type Engine struct {
	*limiter.Engine
	Now *time.Time

	tallied   bool
	namespace string
}

// SetPolicies puts policies in force.
func (e Engine) SetPolicies(policies []policy.Policy) error {
	counting := policy.CountingCounters
	if e.tallied {
		counting = policy.CountingRows
	}
	return e.Engine.SetPolicies(countedBy(counting, policies))
}

// NewEngine returns an engine with these policies in force, as of noon. It has a namespace of its own, unless opts has
// one.
func NewEngine(t testing.TB, store store.Store, opts limiter.Options, policies ...policy.Policy) Engine {
	t.Helper()
	now := Clock(t, "12:00:00")
	if opts.Keyer.Namespace == "" {
		opts.Keyer.Namespace = rand.Text()
	}
	if opts.Now == nil {
		opts.Now = func() time.Time { return now }
	}
	if opts.StoreTimeout == 0 {
		opts.StoreTimeout = storeTimeout
	}
	_, inRows := store.(tallied)
	e := Engine{Engine: limiter.New(store, &opts), Now: &now, tallied: inRows, namespace: opts.Keyer.Namespace}
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

// countedBy returns policies whose windows are counted in the given way.
func countedBy(counting policy.Counting, policies []policy.Policy) []policy.Policy {
	policies = slices.Clone(policies)
	for i := range policies {
		policies[i].Counting = counting
	}
	return policies
}

// storeTimeout is generous: the suite tests answers, not their speed.
const storeTimeout = 10 * time.Second

// Somebody is the identifier that the suite counts for.
const Somebody keys.Identifier = "+4915112345678"

// Do makes a request of cost 1 for Somebody and fails the test on an error.
func (e Engine) Do(t testing.TB, op count.Op, policy string) count.Decision {
	t.Helper()
	do := map[count.Op]func(context.Context, limiter.Demand) (count.Decision, error){
		count.OpCheck: e.Check, count.OpRecord: e.Record, count.OpTake: e.Take,
	}[op]
	d, err := do(t.Context(), limiter.Demand{Policy: policy, Identifier: Somebody})
	if err != nil {
		t.Fatalf("%s: %v", op, err)
	}
	return d
}

// each returns a policy with a limit of n a minute for each algorithm.
func each(n int64) []policy.Policy {
	var policies []policy.Policy
	for _, name := range policy.Algorithms() {
		policies = append(policies, policy.Policy{
			Name:   name,
			Limits: []policy.Limit{{Algorithm: name, Limit: n, Window: time.Minute}},
		})
	}
	return policies
}

func testTraces(t *testing.T, store store.Store) {
	for _, trace := range Traces() {
		t.Run(trace.Name, func(t *testing.T) {
			e := NewEngine(t, store, limiter.Options{}, trace.Policy())
			for i, step := range trace.Steps {
				*e.Now = Clock(t, step.At)
				foreseen, got := e.Do(t, count.OpCheck, "trace"), e.Do(t, count.OpTake, "trace")
				trace.Check(t, i, &got)
				if foreseen.Allowed != got.Allowed {
					t.Errorf("%s: check allows %v, take allows %v", step.At, foreseen.Allowed, got.Allowed)
				}
			}
		})
	}
}

func testCheckRecordsNothing(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{}, each(1)...)
	for _, p := range e.Policies() {
		for range 3 {
			if got := e.Do(t, count.OpCheck, p.Name); !got.Allowed || got.Used != 0 || got.Remaining != 1 {
				t.Fatalf("%s: %+v", p.Name, got.Verdict)
			}
		}
	}
}

func testRecordGoesPastTheLimit(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{}, each(2)...)
	for _, p := range e.Policies() {
		for i := range int64(4) {
			got := e.Do(t, count.OpRecord, p.Name)
			if !got.Allowed || got.Recorded != count.RecordedYes || got.Used < min(i+1, 3) || got.Remaining != max(0, 1-i) {
				t.Errorf("%s, record %d: %+v", p.Name, i+1, got.Verdict)
			}
		}
		if got := e.Do(t, count.OpTake, p.Name); got.Allowed {
			t.Errorf("%s: a take beyond the limit is allowed: %+v", p.Name, got.Verdict)
		}
	}
}

func testCostsCount(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{}, each(10)...)
	for _, p := range e.Policies() {
		take := func(cost int64) count.Decision {
			d, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: Somebody, Cost: cost})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if got := take(8); !got.Allowed || got.Used != 8 {
			t.Errorf("%s: a cost of 8 of 10: %+v", p.Name, got.Verdict)
		}
		if got := take(3); got.Allowed || got.Used != 8 || got.Remaining != 2 {
			t.Errorf("%s: 3 more than there is room for: %+v", p.Name, got.Verdict)
		}
		if got := take(2); !got.Allowed || got.Remaining != 0 {
			t.Errorf("%s: 2 more, after a denial that recorded nothing: %+v", p.Name, got.Verdict)
		}
		_, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: Somebody, Cost: 11})
		if !errors.Is(err, limiter.ErrCostTooLarge) {
			t.Errorf("%s: a cost of 11 of 10: %v", p.Name, err)
		}
	}
}

func testModes(t *testing.T, store store.Store) {
	shadow, off := each(1)[0], each(1)[0]
	shadow.Name, shadow.Mode = "shadow", policy.ModeShadow
	off.Name, off.Mode = "off", policy.ModeOff
	e := NewEngine(t, store, limiter.Options{}, shadow, off)
	e.Do(t, count.OpTake, "shadow")
	if got := e.Do(t, count.OpTake, "shadow"); !got.Allowed || got.WouldAllow || got.Used != 1 || got.Recorded != count.RecordedNo {
		t.Errorf("shadow: allowed %v, would allow %v, used %d", got.Allowed, got.WouldAllow, got.Used)
	}
	e.Do(t, count.OpTake, "off")
	if got := e.Do(t, count.OpTake, "off"); !got.Allowed || !got.WouldAllow || got.Used != 0 {
		t.Errorf("off: allowed %v, would allow %v, used %d", got.Allowed, got.WouldAllow, got.Used)
	}
}

func testSeveralLimits(t *testing.T, store store.Store) {
	e := NewEngine(t, store, limiter.Options{}, policy.Policy{Name: "sms", Limits: []policy.Limit{
		{Name: "cooldown", Algorithm: "sliding-log", Limit: 1, Window: 30 * time.Second},
		{Name: "per-hour", Algorithm: "sliding-tail", Limit: 3, Window: time.Hour},
		{Name: "per-day", Algorithm: "sliding-log", Limit: 4, Window: 24 * time.Hour},
	}})
	for _, step := range []struct {
		at       string
		allowed  bool
		tightest string
	}{
		{"12:00:00", true, "cooldown"},
		{"12:00:10", false, "cooldown"},
		{"12:00:30", true, "cooldown"},
		{"12:01:00", true, "cooldown"},
		{"12:02:00", false, "per-hour"},
		{"13:59:59", true, "cooldown"},
		{"15:00:00", false, "per-day"},
	} {
		*e.Now = Clock(t, step.at)
		if got := e.Do(t, count.OpTake, "sms"); got.Allowed != step.allowed || got.TightestLimit().Name != step.tightest {
			t.Errorf("%s: allowed %v by %s, want %v by %s", step.at, got.Allowed, got.TightestLimit().Name, step.allowed, step.tightest)
		}
	}
}

func testResetReachesEveryEngine(t *testing.T, store store.Store) {
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}, ClockTolerance: 10 * time.Millisecond}
	a, b := NewEngine(t, store, opts, each(2)...), NewEngine(t, store, opts, each(2)...)
	for _, p := range a.Policies() {
		for range 2 { // a key can be reset again and again
			a.Do(t, count.OpTake, p.Name)
			b.Do(t, count.OpTake, p.Name)
			if got := a.Do(t, count.OpTake, p.Name); got.Allowed {
				t.Fatalf("%s: a third take under a limit of 2: %+v", p.Name, got.Verdict)
			}
			if err := a.Reset(t.Context(), p.Name, Somebody); err != nil {
				t.Fatal(err)
			}
			for _, e := range []Engine{a, b} {
				if got := e.Do(t, count.OpCheck, p.Name); got.Used != 0 {
					t.Errorf("%s: used %d after a reset", p.Name, got.Used)
				}
			}
			for _, e := range []Engine{a, b} {
				if got := e.Do(t, count.OpTake, p.Name); !got.Allowed {
					t.Errorf("%s: denied after a reset: %+v", p.Name, got.Verdict)
				}
			}
			if got := b.Do(t, count.OpTake, p.Name); got.Allowed {
				t.Errorf("%s: a third take under a limit of 2 after a reset: %+v", p.Name, got.Verdict)
			}
			if err := b.Reset(t.Context(), p.Name, Somebody); err != nil {
				t.Fatal(err)
			}
			*a.Now, *b.Now = a.Now.Add(time.Second), b.Now.Add(time.Second)
		}
	}
}

// testResetIsCountedUnderFromThenOn lets time pass after a reset, so that an engine that has not read the reset dates
// its units later anyway.
func testResetIsCountedUnderFromThenOn(t *testing.T, store store.Store) {
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}, ClockTolerance: 10 * time.Millisecond}
	a, b, c := NewEngine(t, store, opts, each(3)...), NewEngine(t, store, opts, each(3)...), NewEngine(t, store, opts, each(3)...)
	for _, p := range a.Policies() {
		*a.Now, *b.Now, *c.Now = Clock(t, "12:00:00"), Clock(t, "12:00:10"), Clock(t, "12:00:10")
		a.Do(t, count.OpTake, p.Name)
		a.Do(t, count.OpTake, p.Name)
		if err := a.Reset(t.Context(), p.Name, Somebody); err != nil {
			t.Fatal(err)
		}
		for i, e := range []Engine{b, c, b} {
			if got := e.Do(t, count.OpTake, p.Name); !got.Allowed || got.Used != int64(i+1) {
				t.Errorf("%s: take %d after a reset: %+v", p.Name, i+1, got.Verdict)
			}
		}
		if got := c.Do(t, count.OpTake, p.Name); got.Allowed {
			t.Errorf("%s: a fourth take under a limit of 3 after a reset: %+v", p.Name, got.Verdict)
		}
	}
}

func testReloadKeepsCounts(t *testing.T, store store.Store) {
	p := policy.Policy{Name: "p", Limits: []policy.Limit{
		{Name: "log", Algorithm: "sliding-log", Limit: 5, Window: time.Minute},
		{Name: "window", Algorithm: "fixed-window", Limit: 5, Window: time.Minute},
	}}
	buckets := policy.Policy{Name: "buckets", Limits: []policy.Limit{{Algorithm: "token-bucket", Limit: 5, Window: time.Minute}}}
	e := NewEngine(t, store, limiter.Options{}, p, buckets)
	e.Do(t, count.OpTake, "p")
	e.Do(t, count.OpTake, "buckets")
	p.Limits = append(p.Limits, policy.Limit{Name: "day", Algorithm: "sliding-log", Limit: 5, Window: 24 * time.Hour})
	p.Limits[0].Limit, p.Limits[1].Limit, buckets.Limits[0].Limit = 2, 2, 2
	if err := e.SetPolicies([]policy.Policy{p, buckets}); err != nil {
		t.Fatal(err)
	}
	got := e.Do(t, count.OpTake, "p")
	for i, want := range []int64{2, 2, 1} {
		if got.Limits()[i].Used != want {
			t.Errorf("%s: used %d, want %d", got.Limits()[i].Limit.Name, got.Limits()[i].Used, want)
		}
	}
	if got := e.Do(t, count.OpTake, "buckets"); got.Used != 2 {
		t.Errorf("the bucket: used %d, want 2", got.Used)
	}
}

// testNeverMoreThanTheLimit lets many engines, like many processes, take from
// one key at the same time.
func testNeverMoreThanTheLimit(t *testing.T, store store.Store) {
	const engines, takers, limit = 4, 4, 10
	opts := limiter.Options{Keyer: keys.Keyer{Namespace: rand.Text()}}
	for _, p := range each(limit) {
		var admitted atomic.Int64
		var all sync.WaitGroup
		for range engines {
			e := NewEngine(t, store, opts, p)
			for range takers {
				all.Go(func() {
					for range 2 * limit {
						d, err := e.Take(t.Context(), limiter.Demand{Policy: p.Name, Identifier: Somebody})
						if err != nil {
							t.Error(err)
						} else if d.Allowed {
							admitted.Add(1)
						}
					}
				})
			}
		}
		all.Wait()
		if got := admitted.Load(); got > limit || got == 0 {
			t.Errorf("%s: %d units admitted under a limit of %d", p.Name, got, limit)
		}
	}
}
