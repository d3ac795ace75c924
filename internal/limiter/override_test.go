package limiter_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/overrides"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// override puts o in force for somebody, until so long after now.
func override(t *testing.T, e *limiter.Engine, o demand.Override, lasts time.Duration) {
	t.Helper()
	o.Until = store.InstantOf(time.Now().Add(lasts))
	if _, err := e.Overrides.Set(t.Context(), somebody.Policy, somebody.Identifier, o); err != nil {
		t.Fatal(err)
	}
}

// limitOf returns an override of the only limit of p.
func otherLimit(p *policy.Policy, limit int64) demand.Override {
	return demand.Override{
		Kind: policy.OverrideLimits, Limits: []demand.LimitOverride{{Name: p.WithDefaults().Limits[0].Name, Limit: limit}},
	}
}

func endOverride(t *testing.T, e *limiter.Engine) {
	t.Helper()
	if err := e.Overrides.End(t.Context(), somebody.Policy, somebody.Identifier); err != nil {
		t.Fatal(err)
	}
}

// admits takes until a take is denied and holds how many were allowed against want.
func admits(t *testing.T, e *limiter.Engine, when string, want int) (denied count.Decision) {
	t.Helper()
	for allowed := 0; ; allowed++ {
		d := mustTake(t, e)
		if !d.Allowed {
			if allowed != want {
				t.Errorf("%s: %d allowed, want %d", when, allowed, want)
			}
			return d
		}
		if allowed > want+10 {
			t.Fatalf("%s: more than %d are allowed", when, want)
		}
	}
}

// everyWay calls test with every algorithm under every guarantee, over a store that two
// instances share and, as one instance, over one that holds keys still.
func everyWay(t *testing.T, test func(t *testing.T, p policy.Policy, a, b *limiter.Engine, store *fakeStore)) {
	for _, algorithm := range policy.Algorithms() {
		for _, guarantee := range []policy.Guarantee{policy.GuaranteeCounted, policy.GuaranteeLocal} {
			p := policyOf(algorithm, 2, 24*time.Hour)
			if p.Guarantee = guarantee; len(p.Problems()) > 0 { // a conversion under local
				continue
			}
			bubble(t, algorithm+"/"+string(guarantee), func(t *testing.T) {
				store, feed := newFakeStore(), newFakeFeed()
				test(t, p, instance(t, store, feed, p), instance(t, store, feed, p), store)
			})
		}
		bubble(t, algorithm+"/exclusive", func(t *testing.T) {
			p, store := policyOf(algorithm, 2, 24*time.Hour), embedded.New(nil)
			e := instance(t, store, store, p)
			test(t, p, e, e, nil)
		})
	}
}

// TestOtherLimits has one instance change the limit that another one decides by, up, down
// and back: counts stay.
func TestOtherLimits(t *testing.T) {
	everyWay(t, func(t *testing.T, p policy.Policy, a, b *limiter.Engine, _ *fakeStore) {
		admits(t, b, "by the policy", 2)
		override(t, a, otherLimit(&p, 5), time.Hour)
		time.Sleep(time.Second)
		d := admits(t, b, "by more", 3)
		if d.Override != policy.OverrideLimits || d.Used != 5 || d.TightestLimit().Limit != 5 {
			t.Errorf("by more: %+v", d)
		}
		override(t, a, otherLimit(&p, 1), time.Hour)
		time.Sleep(time.Second)
		if d := admits(t, b, "by less", 0); d.TightestLimit().Limit != 1 {
			t.Errorf("by less: %+v", d)
		}
		override(t, a, otherLimit(&p, 0), time.Hour)
		time.Sleep(time.Second)
		if d := admits(t, b, "by nothing", 0); d.RetryAfter != count.Never {
			t.Errorf("by nothing: %+v", d)
		}
		override(t, a, otherLimit(&p, 7), 10*time.Second)
		time.Sleep(time.Second)
		admits(t, b, "by more for a while", 2)
		time.Sleep(9 * time.Second)
		if d := admits(t, b, "afterwards", 0); d.Override != "" || d.TightestLimit().Limit != 2 {
			t.Errorf("afterwards: %+v", d)
		}
		override(t, a, otherLimit(&p, 8), time.Hour)
		endOverride(t, a)
		time.Sleep(time.Second)
		admits(t, b, "ended", 0)
	})
}

// TestAllowAndBlock allows and blocks, asks nobody, and counts nothing meanwhile.
func TestAllowAndBlock(t *testing.T) {
	everyWay(t, func(t *testing.T, _ policy.Policy, a, b *limiter.Engine, s *fakeStore) {
		mustTake(t, b)
		override(t, a, demand.Override{Kind: policy.OverrideBlock}, time.Minute)
		time.Sleep(time.Second)
		if s != nil { // while the store does not answer, too
			s.set(func() {
				s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
				s.afterRead = func(*store.State) error { return store.ErrUnavailable }
			})
		}
		for _, d := range []count.Decision{mustTake(t, b), mustCheck(t, b)} {
			if d.Allowed || !d.Blocked || d.Override != policy.OverrideBlock || d.RetryAfter != 59*time.Second || d.Degraded ||
				d.Used != 0 || d.Remaining != 0 || slices.ContainsFunc(d.Limits(), func(l count.LimitDecision) bool { return l.Used != 0 }) {
				t.Errorf("blocked: %+v", d)
			}
		}
		override(t, a, demand.Override{Kind: policy.OverrideAllow}, time.Minute)
		time.Sleep(time.Second)
		for range 5 {
			if d := mustTake(t, b); !d.Allowed || d.Override != policy.OverrideAllow || d.Recorded != count.RecordedNo || d.Degraded {
				t.Errorf("allowed: %+v", d)
			}
		}
		if s != nil {
			s.set(func() { s.onWrite, s.afterRead = nil, nil })
		}
		time.Sleep(time.Minute)
		admits(t, b, "afterwards", 1) // one was taken before
		override(t, a, demand.Override{Kind: policy.OverrideBlock}, time.Minute)
		endOverride(t, a)
		time.Sleep(time.Second)
		admits(t, b, "ended", 0)
	})
}

// TestRecordsUnderOverrides are counted all the same.
func TestRecordsUnderOverrides(t *testing.T) {
	for _, kind := range []policy.OverrideKind{policy.OverrideAllow, policy.OverrideBlock} {
		bubble(t, string(kind), func(t *testing.T) {
			e := instance(t, newFakeStore(), newFakeFeed(), policyOf("sliding-log", 2, time.Hour))
			override(t, e, demand.Override{Kind: kind}, time.Minute)
			if d, err := e.Record(t.Context(), somebody); err != nil || d.Recorded != count.RecordedYes || d.Used != 1 || d.Override != "" {
				t.Errorf("%+v, %v", d, err)
			}
			time.Sleep(time.Minute)
			admits(t, e, "afterwards", 1)
		})
	}
}

// TestOverridesInCallsOfSeveral has one demand of two overridden.
func TestOverridesInCallsOfSeveral(t *testing.T) {
	other := policy.Policy{Name: "q", Limits: []policy.Limit{{Algorithm: "fixed-window", Limit: 1, Window: time.Hour}}}
	both := func(t *testing.T, e *limiter.Engine) limiter.Answer {
		t.Helper()
		a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
			somebody, {Policy: "q", Identifier: "somewhere"},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for name, store := range map[string]func() store.Store{
		"shared":    func() store.Store { return newFakeStore() },
		"exclusive": func() store.Store { return embedded.New(nil) },
	} {
		bubble(t, name, func(t *testing.T) {
			e := instance(t, store(), newFakeFeed(), policyOf("sliding-log", 1, time.Hour), other)
			override(t, e, demand.Override{Kind: policy.OverrideBlock}, time.Minute)
			if a := both(t, e); a.Allowed || !a.Blocked || !a.Demands[1].Allowed || a.Demands[1].Used != 0 {
				t.Errorf("one is blocked, and nothing of the other is counted: %+v", a)
			}
			override(t, e, demand.Override{Kind: policy.OverrideAllow}, time.Minute)
			if a := both(t, e); !a.Allowed || a.Demands[0].Override != policy.OverrideAllow || a.Demands[1].Used != 1 || a.Receipt == "" {
				t.Errorf("one is allowed, and the other is counted: %+v", a)
			}
			if a := both(t, e); a.Allowed || !a.Demands[0].Allowed || a.Demands[1].Allowed {
				t.Errorf("one is allowed, and the other is at its limit: %+v", a)
			}
		})
	}
}

// TestOverridesAndModes leaves what shadow and off promise.
func TestOverridesAndModes(t *testing.T) {
	for _, mode := range []policy.Mode{policy.ModeShadow, policy.ModeOff} {
		bubble(t, string(mode), func(t *testing.T) {
			p := policyOf("sliding-log", 1, time.Hour)
			p.Mode = mode
			e := instance(t, newFakeStore(), newFakeFeed(), p)
			override(t, e, demand.Override{Kind: policy.OverrideBlock}, time.Minute)
			if d := mustTake(t, e); !d.Allowed || d.WouldAllow != (mode == policy.ModeOff) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// TestOverridesOfCalls reserves and repeats under overrides.
func TestOverridesOfCalls(t *testing.T) {
	bubble(t, "calls", func(t *testing.T) {
		e := instance(t, newFakeStore(), newFakeFeed(), policyOf("sliding-log", 1, time.Hour))
		do := func(c limiter.Call) limiter.Answer {
			t.Helper()
			c.Demands = []limiter.Demand{somebody}
			a, err := e.Do(t.Context(), &c)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		override(t, e, demand.Override{Kind: policy.OverrideAllow}, time.Minute)
		for range 3 {
			if a := do(limiter.Call{Op: count.OpCheck, Reserve: time.Minute}); !a.Allowed || a.Reservation != "" {
				t.Errorf("nothing is held for who is allowed: %+v", a)
			}
		}
		if a := do(limiter.Call{Op: count.OpTake, IdempotencyKey: "k"}); !a.Allowed || a.Receipt != "" {
			t.Errorf("%+v", a)
		}
		override(t, e, demand.Override{Kind: policy.OverrideBlock}, time.Minute)
		if a := do(limiter.Call{Op: count.OpTake, IdempotencyKey: "k"}); a.Allowed || !a.Blocked || a.Replayed {
			t.Errorf("nothing was recorded, and it is decided anew: %+v", a)
		}
		p := policyOf("sliding-log", 1, time.Hour)
		override(t, e, otherLimit(&p, 2), time.Minute)
		for i, replayed := range []bool{false, true} {
			a := do(limiter.Call{Op: count.OpTake, IdempotencyKey: "l"})
			if !a.Allowed || a.Used != 1 || a.Replayed != replayed || a.Override != policy.OverrideLimits {
				t.Errorf("%d: %+v", i, a)
			}
		}
	})
}

// TestBlocksAndOverrides has an override stand above a block, a reset leave it, and other
// limits leave a block.
func TestBlocksAndOverrides(t *testing.T) {
	bubble(t, "blocks", func(t *testing.T) {
		p := blocking()
		e := instance(t, newFakeStore(), newFakeFeed(), p)
		provoke(t, e)
		override(t, e, otherLimit(&p, 100), time.Minute)
		if d := mustTake(t, e); !d.Blocked || d.Override != policy.OverrideLimits {
			t.Errorf("other limits lift no block: %+v", d)
		}
		override(t, e, demand.Override{Kind: policy.OverrideAllow}, time.Minute)
		mustReset(t, e)
		if d := mustTake(t, e); !d.Allowed || d.Override != policy.OverrideAllow {
			t.Errorf("%+v", d)
		}
	})
}

// TestInstancesThatStartKnowOverrides before their first decision, and only the latest of
// each key.
func TestInstancesThatStartKnowOverrides(t *testing.T) {
	bubble(t, "start", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		p := policyOf("fixed-window", 2, time.Hour)
		anew := func() *limiter.Engine {
			e := limiter.New(store, &limiter.Options{Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil)})
			if err := errors.Join(e.SetPolicies([]policy.Policy{p}), e.CatchUp(t.Context())); err != nil {
				t.Fatal(err)
			}
			return e
		}
		a := anew() // which does not run: it would ask for news a million times
		override(t, a, demand.Override{Kind: policy.OverrideAllow, By: "operator"}, overrides.Longest)
		time.Sleep(20 * 24 * time.Hour)
		if d := mustTake(t, anew()); d.Override != policy.OverrideAllow {
			t.Errorf("%+v", d)
		}
		got, ok, err := anew().Overrides.Of(somebody.Policy, somebody.Identifier)
		want, _, _ := a.Overrides.Of(somebody.Policy, somebody.Identifier)
		if !ok || err != nil || !reflect.DeepEqual(got, want) || got.By != "operator" {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
		override(t, a, demand.Override{Kind: policy.OverrideBlock}, time.Second)
		if lasts := feed.published[len(feed.published)-1].TTL; lasts < overrides.Longest { // a store may still have the earlier one
			t.Errorf("what replaces an override is told for %v, and an override lasts up to %v", lasts, overrides.Longest)
		}
		time.Sleep(time.Hour)
		if d := mustTake(t, anew()); d.Override != "" {
			t.Errorf("what was replaced is back: %+v", d)
		}
		override(t, a, demand.Override{Kind: policy.OverrideBlock}, 24*time.Hour)
		endOverride(t, a)
		time.Sleep(time.Hour)
		if e := anew(); len(e.Overrides.All()) > 0 {
			t.Errorf("what was ended is back: %+v", e.Overrides.All())
		}
	})
}

// TestOverridesWithoutEnd are in force months later, on instances that start then as well, until they are replaced.
func TestOverridesWithoutEnd(t *testing.T) {
	bubble(t, "ever", func(t *testing.T) {
		s, feed := newFakeStore(), newFakeFeed()
		p := policyOf("fixed-window", 2, time.Hour)
		anew := func() *limiter.Engine {
			e := limiter.New(s, &limiter.Options{Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil)})
			if err := errors.Join(e.SetPolicies([]policy.Policy{p}), e.CatchUp(t.Context())); err != nil {
				t.Fatal(err)
			}
			return e
		}
		put := func(e *limiter.Engine, kind policy.OverrideKind) {
			t.Helper()
			o := demand.Override{Kind: kind, Until: store.Distant}
			if _, err := e.Overrides.Set(t.Context(), somebody.Policy, somebody.Identifier, o); err != nil {
				t.Fatal(err)
			}
		}
		a := anew()
		put(a, policy.OverrideBlock)
		time.Sleep(400 * 24 * time.Hour)
		for _, e := range []*limiter.Engine{a, anew()} {
			if d := mustTake(t, e); !d.Blocked || d.Override != policy.OverrideBlock || d.RetryAfter != count.Never || d.ResetAfter != 0 {
				t.Errorf("blocked without end: %+v", d)
			}
		}
		put(a, policy.OverrideAllow)
		time.Sleep(100 * 24 * time.Hour)
		if d := mustTake(t, anew()); d.Override != policy.OverrideAllow {
			t.Errorf("what was replaced is back: %+v", d)
		}
		override(t, a, demand.Override{Kind: policy.OverrideBlock}, time.Hour)
		time.Sleep(100 * 24 * time.Hour)
		if all := anew().Overrides.All(); len(all) > 0 {
			t.Errorf("one without end is back when what replaced it is over: %+v", all)
		}
		put(a, policy.OverrideAllow)
		endOverride(t, a)
		time.Sleep(100 * 24 * time.Hour)
		if all := anew().Overrides.All(); len(all) > 0 {
			t.Errorf("what was ended is back: %+v", all)
		}
	})
}

// TestOverridesAreListed with those without end first, and then by their ends.
func TestOverridesAreListed(t *testing.T) {
	bubble(t, "list", func(t *testing.T) {
		e := instance(t, newFakeStore(), newFakeFeed(), policyOf("fixed-window", 2, time.Hour))
		now := store.InstantOf(time.Now())
		ends := []store.Instant{now.Add(time.Hour), store.Distant, now.Add(time.Minute)}
		for i, until := range ends {
			id := keys.Identifier(fmt.Sprint(i))
			if _, err := e.Overrides.Set(t.Context(), somebody.Policy, id, demand.Override{Kind: policy.OverrideAllow, Until: until}); err != nil {
				t.Fatal(err)
			}
		}
		var listed []store.Instant
		for _, o := range e.Overrides.All() {
			listed = append(listed, o.Until)
		}
		if want := []store.Instant{ends[1], ends[2], ends[0]}; !slices.Equal(listed, want) {
			t.Errorf("%v, want %v", listed, want)
		}
	})
}

// TestSlowClocksOverrideFastOnes has an instance replace, by a clock that is behind, what
// one whose clock is ahead has made.
func TestSlowClocksOverrideFastOnes(t *testing.T) {
	bubble(t, "clocks", func(t *testing.T) {
		store, feed, p := newFakeStore(), newFakeFeed(), policyOf("fixed-window", 2, time.Hour)
		by := func(offset time.Duration) *limiter.Options {
			now := func() time.Time { return time.Now().Add(offset) }
			return &limiter.Options{Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Now: now}
		}
		fast, slow := instanceWith(t, store, by(tolerance), p), limiter.New(store, by(-tolerance)) // which hears when it is asked to
		if err := slow.SetPolicies([]policy.Policy{p}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			override(t, fast, demand.Override{Kind: policy.OverrideBlock}, time.Hour)
			if err := slow.CatchUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			override(t, slow, demand.Override{Kind: policy.OverrideAllow}, time.Hour)
			time.Sleep(time.Second)
			for _, e := range []*limiter.Engine{fast, slow} {
				if d := mustTake(t, e); d.Override != policy.OverrideAllow {
					t.Errorf("%+v", d)
				}
			}
		}
	})
}

// TestOverrideThatIsNotStored is none, here or elsewhere; one of which nobody knows comes
// into force everywhere if it was stored.
func TestOverrideThatIsNotStored(t *testing.T) {
	bubble(t, "feed", func(t *testing.T) {
		s, feed := newFakeStore(), &lateFeed{fakeFeed: newFakeFeed()}
		p := policyOf("fixed-window", 2, time.Hour)
		a, b := instance(t, s, feed, p), instance(t, s, feed, p)
		set := func() error {
			until := store.InstantOf(time.Now().Add(time.Hour))
			_, err := a.Overrides.Set(t.Context(), somebody.Policy, somebody.Identifier, demand.Override{Kind: policy.OverrideBlock, Until: until})
			return err
		}
		feed.set(func() { feed.deaf = true })
		var failed *count.StoreError
		if err := set(); !errors.As(err, &failed) || !errors.Is(err, store.ErrUnavailable) || mustTake(t, a).Override != "" {
			t.Errorf("%v", err)
		}
		feed.set(func() { feed.deaf = false })
		feed.late.Store(true)
		if err := set(); !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Second)
		if da, db := mustTake(t, a), mustTake(t, b); !da.Blocked || !db.Blocked {
			t.Errorf("here %+v, elsewhere %+v", da, db)
		}
	})
}

// lateFeed stores what it says it could not.
type lateFeed struct {
	*fakeFeed
	late atomic.Bool
}

func (f *lateFeed) Publish(ctx context.Context, c *store.Change) error {
	err := f.fakeFeed.Publish(ctx, c)
	if f.late.Load() {
		return errFeedDown
	}
	return err
}

// TestOverridesUnderTwoHashKeys are known to instances that write under either.
func TestOverridesUnderTwoHashKeys(t *testing.T) {
	first := keys.Keyer{Secret: &keys.HashKey{ID: "1", Secret: []byte("0123456789abcdef")}}
	second := keys.Keyer{Secret: &keys.HashKey{ID: "2", Secret: []byte("fedcba9876543210")}}
	bubble(t, "keys", func(t *testing.T) {
		store, feed, p := newFakeStore(), newFakeFeed(), policyOf("sliding-log", 2, time.Hour)
		with := func(write keys.Keyer, read ...keys.Keyer) *limiter.Engine {
			return instanceWith(t, store, &limiter.Options{Feed: feed, Keyer: write, AlsoRead: read, StoreTimeout: timeout}, p)
		}
		old, both := with(first), with(second, first)
		for _, way := range [][2]*limiter.Engine{{old, both}, {both, old}} {
			override(t, way[0], demand.Override{Kind: policy.OverrideBlock}, time.Minute)
			time.Sleep(time.Second)
			if d := mustTake(t, way[1]); !d.Blocked {
				t.Errorf("not blocked elsewhere: %+v", d)
			}
			endOverride(t, way[0])
			time.Sleep(time.Second)
			if d := mustCheck(t, both); d.Blocked && way[0] == both {
				t.Errorf("still blocked: %+v", d)
			}
		}
	})
}

// TestSwitchesAdmitNoMore has several instances take at once while the limit changes: no
// more than the largest is ever admitted.
func TestSwitchesAdmitNoMore(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		bubble(t, algorithm, func(t *testing.T) {
			const most = 40
			store, feed, p := newFakeStore(), newFakeFeed(), policyOf(algorithm, 5, 24*time.Hour)
			store.readTakes, store.writeTakes = 3*time.Millisecond, 2*time.Millisecond
			var engines []*limiter.Engine
			for range 3 {
				engines = append(engines, instance(t, store, feed, p))
			}
			var admitted atomic.Int64
			var all sync.WaitGroup
			for _, e := range engines {
				all.Go(func() {
					for range 40 {
						ok, _ := takeAtOnce(e, 4)
						admitted.Add(int64(ok))
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			for i, limit := range []int64{7, most, 3, 20} {
				time.Sleep(700 * time.Millisecond)
				override(t, engines[i%len(engines)], otherLimit(&p, limit), time.Hour)
			}
			all.Wait()
			if n := admitted.Load(); n > most || n < most-5 {
				t.Errorf("%d admitted, by limits of up to %d", n, most)
			}
		})
	}
}

// TestInstancesAgree hears of the same changes in different orders, some twice: the same
// is in force everywhere.
func TestInstancesAgree(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		heard := limiter.SomeOverrideChanges(r, 12)
		var first []overrides.Keyed
		for order := range 4 {
			r.Shuffle(len(heard), func(i, j int) { heard[i], heard[j] = heard[j], heard[i] })
			inForce := limiter.OverridesAfter(append(heard, heard[:r.IntN(len(heard))]...))
			if order == 0 {
				first = inForce
			} else if !reflect.DeepEqual(inForce, first) {
				t.Fatalf("seed %d: %+v and %+v", seed, first, inForce)
			}
		}
	}
}

// TestWrongOverrides are refused, with the field that is wrong.
func TestWrongOverrides(t *testing.T) {
	log := policy.Limit{Name: "log", Algorithm: "sliding-log", Limit: 5, Window: time.Hour}
	bucket := policy.Limit{Name: "bucket", Algorithm: "token-bucket", Limit: 5, Window: time.Hour}
	slow := policy.Limit{Name: "slow", Algorithm: "token-bucket", Limit: 60, Window: time.Minute, Burst: 1}
	bubble(t, "wrong", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0,
			policy.Policy{Name: "p", Limits: []policy.Limit{log}}, policy.Policy{Name: "b", Limits: []policy.Limit{bucket, slow}})
		limits := func(l ...demand.LimitOverride) demand.Override {
			return demand.Override{Kind: policy.OverrideLimits, Limits: l}
		}
		for _, c := range []struct {
			o     demand.Override
			lasts time.Duration
			field string
		}{
			{demand.Override{Kind: "other"}, time.Hour, "kind"},
			{demand.Override{}, time.Hour, "kind"},
			{demand.Override{Kind: policy.OverrideAllow}, 0, "expires_in_ms"},
			{demand.Override{Kind: policy.OverrideAllow}, overrides.Longest + time.Millisecond, "expires_in_ms"},
			{demand.Override{Kind: policy.OverrideAllow, Limits: limits(demand.LimitOverride{Name: "log"}).Limits}, time.Hour, "limits"},
			{limits(), time.Hour, "limits"},
			{limits(demand.LimitOverride{Name: "lag", Limit: 1}), time.Hour, "limits[0].name"},
			{limits(demand.LimitOverride{Name: "log", Limit: 1}, demand.LimitOverride{Name: "log", Limit: 1}), time.Hour, "limits[1].name"},
			{limits(demand.LimitOverride{Name: "log", Limit: -1}), time.Hour, "limits[0].limit"},
			{limits(demand.LimitOverride{Name: "log", Limit: policy.MaxLogLimit + 1}), time.Hour, "limits[0].limit"},
			{limits(demand.LimitOverride{Name: "log", Limit: 1, Burst: 1}), time.Hour, "limits[0].burst"},
			{limits(demand.LimitOverride{Name: "bucket", Limit: 1e10, Burst: 2}), time.Hour, "limits[0].burst"},
			{limits(demand.LimitOverride{Name: "bucket", Limit: 9, Burst: policy.MaxLimit + 1}), time.Hour, "limits[0].burst"},
			{limits(demand.LimitOverride{Name: "slow", Limit: 120_000}), time.Hour, "limits[0].limit"},
			{limits(demand.LimitOverride{Name: "slow", Limit: 120_000, Burst: 2}), time.Hour, ""},
			{limits(demand.LimitOverride{Name: "bucket", Limit: 1e10}), time.Hour, ""},
			{limits(demand.LimitOverride{Name: "bucket", Limit: 9, Burst: 20}, demand.LimitOverride{Name: "slow", Limit: 60}),
				time.Hour, ""},
			{limits(demand.LimitOverride{Name: "log"}), time.Hour, ""},
		} {
			c.o.Until = store.InstantOf(time.Now().Add(c.lasts))
			of := "p"
			if slices.ContainsFunc(c.o.Limits, func(l demand.LimitOverride) bool { return l.Name != "log" && l.Name != "lag" }) {
				of = "b"
			}
			_, err := e.Overrides.Set(t.Context(), of, "a", c.o)
			var wrong *limiter.FieldError
			if c.field == "" && err != nil || c.field != "" && (!errors.As(err, &wrong) || wrong.Field != c.field) {
				t.Errorf("%+v: %v, want %q", c.o, err, c.field)
			}
		}
		lag := limits(demand.LimitOverride{Name: "lag", Limit: 1})
		lag.Until = store.InstantOf(time.Now().Add(time.Hour))
		if _, err := e.Overrides.Set(t.Context(), "p", "a", lag); err == nil || !strings.Contains(err.Error(), "it has log") {
			t.Errorf("%v: it should name the limits there are", err)
		}
		if _, err := e.Overrides.Set(t.Context(), "q", "a", demand.Override{}); !errors.Is(err, limiter.ErrUnknownPolicy) {
			t.Errorf("another policy: %v", err)
		}
		if d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "b", Cost: 6}); !errors.Is(err, limiter.ErrCostTooLarge) {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestCostsUnderOtherLimits asks for more than the policy could ever hold.
func TestCostsUnderOtherLimits(t *testing.T) {
	bubble(t, "costs", func(t *testing.T) {
		p := policyOf("token-bucket", 5, time.Hour)
		e := newEngine(t, newFakeStore(), 0, p)
		large := somebody
		large.Cost = 6
		if _, err := e.Take(t.Context(), large); !errors.Is(err, limiter.ErrCostTooLarge) {
			t.Errorf("%v", err)
		}
		override(t, e, otherLimit(&p, 6), time.Hour) // its burst was the default, and is again
		if d, err := e.Take(t.Context(), large); err != nil || !d.Allowed {
			t.Errorf("%+v, %v", d, err)
		}
	})
}

// TestCostsThatNoLimitHolds are allowed or denied as the override says: no limit is asked.
func TestCostsThatNoLimitHolds(t *testing.T) {
	bubble(t, "costs", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0, policyOf("fixed-window", 5, time.Hour))
		large := somebody
		large.Cost = 6
		for _, kind := range []policy.OverrideKind{policy.OverrideAllow, policy.OverrideBlock} {
			override(t, e, demand.Override{Kind: kind}, time.Hour)
			if d, err := e.Take(t.Context(), large); err != nil || d.Allowed != (kind == policy.OverrideAllow) {
				t.Errorf("%s: %+v, %v", kind, d, err)
			}
		}
		endOverride(t, e)
		if _, err := e.Take(t.Context(), large); !errors.Is(err, limiter.ErrCostTooLarge) {
			t.Errorf("%v", err)
		}
		large.Cost = policy.MaxCost + 1
		override(t, e, demand.Override{Kind: policy.OverrideAllow}, time.Hour)
		if _, err := e.Take(t.Context(), large); !errors.Is(err, limiter.ErrInvalid) {
			t.Errorf("%v", err)
		}
	})
}

// TestOverridesSurviveReloads, of which one leaves the limit out, and one makes of it what
// the override does not fit.
func TestOverridesSurviveReloads(t *testing.T) {
	bubble(t, "reload", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0, policyOf("fixed-window", 2, time.Hour))
		p := policyOf("fixed-window", 2, time.Hour)
		override(t, e, otherLimit(&p, 20_000), time.Hour)
		for i, c := range []struct {
			name, algorithm string
			limit           int64
		}{{"", "fixed-window", 20_000}, {"other", "fixed-window", 3}, {"fixed-window-1h", "sliding-log", 3}, {"", "fixed-window", 20_000}} {
			q := policyOf(c.algorithm, 3, time.Hour)
			q.Limits[0].Name = c.name
			if err := e.SetPolicies([]policy.Policy{q}); err != nil {
				t.Fatal(err)
			}
			if d := mustCheck(t, e); d.TightestLimit().Limit != c.limit {
				t.Errorf("%d: %+v", i, d)
			}
		}
	})
}

// TestManyOverrides is refused past the bound.
func TestManyOverrides(t *testing.T) {
	bubble(t, "many", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0, policyOf("fixed-window", 2, time.Hour))
		until := store.InstantOf(time.Now().Add(time.Hour))
		for i := range overrides.MaxLive + 1 {
			_, err := e.Overrides.Set(t.Context(), "p", keys.Identifier(fmt.Sprint(i)), demand.Override{Kind: policy.OverrideBlock, Until: until})
			if full := i == overrides.MaxLive; full != errors.Is(err, store.ErrOverloaded) || !full && err != nil {
				t.Fatalf("%d: %v", i, err)
			}
		}
		if n := len(e.Overrides.All()); n != overrides.MaxLive {
			t.Errorf("%d", n)
		}
	})
}

// TestDerivedUnderOverrides has a policy derive what it does while a number has other
// limits, and overrides what is derived.
func TestDerivedUnderOverrides(t *testing.T) {
	policies := ofCountries(1, 3)
	bubble(t, "derived", func(t *testing.T) {
		e := readingEngine(t, embedded.New(nil), policies...)
		number := limiter.Demand{Policy: "p", Identifier: "+49 151 12345678"}
		set := func(policy string, id keys.Identifier, o demand.Override) {
			t.Helper()
			o.Until = store.InstantOf(time.Now().Add(time.Hour))
			if _, err := e.Overrides.Set(t.Context(), policy, id, o); err != nil {
				t.Fatal(err)
			}
		}
		take := func(want ...bool) limiter.Answer {
			t.Helper()
			a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{number}})
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Demands) != 2 || a.Demands[0].Allowed != want[0] || a.Demands[1].Allowed != want[1] {
				t.Errorf("%+v, want %v", a.Demands, want)
			}
			return a
		}
		set("p", "+4915112345678", otherLimit(&policies[0], 9))
		for used := range int64(3) {
			if a := take(true, true); a.Demands[1].Used != used+1 {
				t.Errorf("of the country: %+v", a.Demands[1])
			}
		}
		take(true, false)
		set("q", "DE", otherLimit(&policies[1], 4))
		if x, err := e.Explain(t.Context(), number); err != nil || !x.Derived[0].Answer.Allowed {
			t.Errorf("%+v, %v", x, err)
		}
		take(true, true)
		set("q", "DE", demand.Override{Kind: policy.OverrideAllow})
		take(true, true)
		set("q", "DE", demand.Override{Kind: policy.OverrideBlock})
		if a := take(true, false); a.Allowed || a.Demands[1].Override != policy.OverrideBlock || a.Demands[0].Used != 5 {
			t.Errorf("%+v", a)
		}
		x, err := e.Explain(t.Context(), number)
		if err != nil || len(x.Derived) != 1 || x.Derived[0].Policy != "q" || x.Derived[0].Override == nil || x.Derived[0].Counted.Used != 4 {
			t.Errorf("%+v, %v", x, err)
		}
	})
}

// TestLogsUnderFewer keeps events apart that the policy needs when an override of fewer is
// over, in a store that merges those that nobody needs.
func TestLogsUnderFewer(t *testing.T) {
	bubble(t, "log", func(t *testing.T) {
		p := policyOf("sliding-log", 100, time.Hour)
		e := newEngine(t, embedded.New(nil), 0, p)
		for range 60 {
			mustTake(t, e)
			time.Sleep(time.Minute)
		}
		override(t, e, otherLimit(&p, 1), time.Minute)
		for range 2 {
			if _, err := e.Record(t.Context(), somebody); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for want := int64(61); want > 50; want-- { // the first one leaves now, and then one every minute
			endOverride(t, e)
			if d := mustCheck(t, e); d.Used != want {
				t.Errorf("used %d, want %d", d.Used, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// An override that is told of under one of two hash keys may be in force.
func TestOverrideToldOfByHalf(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		feed := newFakeFeed()
		secrets := []keys.Keyer{secretOf("1"), secretOf("2")}
		e := instanceWith(t, newFakeStore(), &limiter.Options{Feed: &halfFeed{fakeFeed: feed}, Keyer: secrets[0], AlsoRead: secrets[1:]},
			policyOf("sliding-log", 5, time.Hour))
		_, err := e.Overrides.Set(t.Context(), somebody.Policy, somebody.Identifier, demand.Override{
			Kind: policy.OverrideAllow, Until: store.InstantOf(time.Now().Add(time.Hour)),
		})
		var failed *count.StoreError
		if !errors.As(err, &failed) || failed.Recorded != count.RecordedUnknown {
			t.Errorf("%v", err)
		}
	})
}

// halfFeed takes the first change only.
type halfFeed struct {
	*fakeFeed
	taken atomic.Bool
}

func (f *halfFeed) Publish(ctx context.Context, c *store.Change) error {
	if f.taken.Swap(true) {
		return errors.Join(store.ErrUnavailable, store.ErrNotStored)
	}
	return f.fakeFeed.Publish(ctx, c)
}
