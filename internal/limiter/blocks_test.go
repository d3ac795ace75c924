package limiter_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// blocking returns a policy of one unit a minute whose denials block for 10 minutes,
// then 20, and 30 at most.
func blocking() policy.Policy {
	p := policyOf("sliding-log", 1, time.Minute)
	p.BlockFor, p.BlockFactor, p.BlockMax = 10*time.Minute, 2, 30*time.Minute
	return p
}

// instance returns an engine that carries news by feed and runs.
func instance(t *testing.T, store store.Store, feed store.Feed, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	o := &limiter.Options{Feed: feed, ClockTolerance: tolerance, StoreTimeout: timeout, Local: embedded.New(nil)}
	return instanceWith(t, store, o, policies...)
}

func instanceWith(t *testing.T, store store.Store, o *limiter.Options, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, o)
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	running(t, e)
	synctest.Wait()
	return e
}

// provoke takes until a take is denied and returns that denial.
func provoke(t *testing.T, e *limiter.Engine) count.Decision {
	t.Helper()
	for range 10 {
		if d := mustTake(t, e); !d.Allowed {
			return d
		}
	}
	t.Fatal("nothing denied")
	return count.Decision{}
}

func mustCheck(t *testing.T, e *limiter.Engine) count.Decision {
	t.Helper()
	d, err := e.Check(t.Context(), somebody)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestBlockReachesOtherInstancesAndOnesStartedAnew(t *testing.T) {
	bubble(t, "block", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		a, b := instance(t, store, feed, blocking()), instance(t, store, feed, blocking())
		if d := provoke(t, a); d.Blocked || d.RetryAfter != 10*time.Minute {
			t.Errorf("the denial that blocks: blocked %v, retry after %v", d.Blocked, d.RetryAfter)
		}
		time.Sleep(time.Second)
		anew := instance(t, store, feed, blocking())
		for name, e := range map[string]*limiter.Engine{"a": a, "b": b, "anew": anew} {
			want := count.Verdict{Used: 1, ResetAfter: 10*time.Minute - time.Second, RetryAfter: 10*time.Minute - time.Second}
			if d := mustCheck(t, e); !d.Blocked || d.Verdict != want || d.Limits()[0].Verdict != want || d.Recorded != count.RecordedNo {
				t.Errorf("%s: blocked %v, %+v, want %+v", name, d.Blocked, d.Verdict, want)
			}
		}
		time.Sleep(10*time.Minute - time.Second - time.Millisecond)
		if d := mustTake(t, anew); d.Allowed || d.RetryAfter != time.Millisecond {
			t.Errorf("a millisecond before the end: %+v", d.Verdict)
		}
		time.Sleep(time.Millisecond)
		if d := mustTake(t, b); !d.Allowed || d.Blocked {
			t.Errorf("at the end: %+v", d.Verdict)
		}
	})
}

func TestBlockWithoutAFeedHoldsWhereItWasMade(t *testing.T) {
	for name, store := range map[string]func() store.Store{
		"shared":    func() store.Store { return newFakeStore() },
		"exclusive": func() store.Store { return embedded.New(nil) },
	} {
		bubble(t, name, func(t *testing.T) {
			e := instance(t, store(), nil, blocking())
			provoke(t, e)
			time.Sleep(9 * time.Minute)
			if d := mustTake(t, e); d.Allowed || !d.Blocked || d.RetryAfter != time.Minute {
				t.Errorf("%+v", d.Verdict)
			}
		})
	}
}

// TestBlocksInARow has every block follow the last one as soon as it is over, each on
// the other instance.
func TestBlocksInARow(t *testing.T) {
	bubble(t, "strikes", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		two := [2]*limiter.Engine{instance(t, store, feed, blocking()), instance(t, store, feed, blocking())}
		for i, want := range []time.Duration{10, 20, 30, 30} {
			d := provoke(t, two[i%2])
			if d.RetryAfter != want*time.Minute {
				t.Errorf("block %d: %v, want %d minutes", i+1, d.RetryAfter, want)
			}
			time.Sleep(d.RetryAfter)
		}
		time.Sleep(30 * time.Minute)
		if d := provoke(t, two[1]); d.RetryAfter != 30*time.Minute {
			t.Errorf("half an hour after the last: %v", d.RetryAfter)
		}
		time.Sleep(time.Hour + time.Second)
		for i, e := range []*limiter.Engine{two[0], instance(t, store, feed, blocking())} {
			if d := provoke(t, e); d.RetryAfter != 10*time.Minute {
				t.Errorf("a good half hour after the last, instance %d: %v, want 10 minutes again", i, d.RetryAfter)
			}
			mustReset(t, e)
			time.Sleep(time.Second)
		}
	})
}

func TestDenialsAtOnceAreOneBlock(t *testing.T) {
	bubble(t, "two instances", func(t *testing.T) {
		store, feed := newFakeStore(), newFakeFeed()
		a, b := instance(t, store, feed, blocking()), instance(t, store, feed, blocking())
		mustTake(t, a)
		for range 3 {
			mustTake(t, a)
			mustTake(t, b)
		}
		time.Sleep(100 * time.Millisecond)
		c := instance(t, store, feed, blocking())
		time.Sleep(10*time.Minute + time.Second)
		for i, e := range []*limiter.Engine{a, b, c} {
			d := provoke(t, e)
			if d.RetryAfter != 20*time.Minute { // the others deny before they can have heard of the first's
				t.Errorf("instance %d: the second block lasts %v, want 20 minutes", i, d.RetryAfter)
			}
		}
	})
	bubble(t, "one instance", func(t *testing.T) {
		store := newFakeStore()
		store.writeTakes = time.Millisecond
		e := instance(t, store, newFakeFeed(), blocking())
		takeAtOnce(e, 50)
		time.Sleep(10*time.Minute + time.Second)
		if d := provoke(t, e); d.RetryAfter != 20*time.Minute {
			t.Errorf("the second block lasts %v, want 20 minutes", d.RetryAfter)
		}
	})
}

func TestMergedBlocks(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b [3]int // made, until, strikes
		want [2]int
	}{
		{"the same twice", [3]int{10, 20, 2}, [3]int{10, 20, 2}, [2]int{20, 2}},
		{"overlapping", [3]int{10, 20, 2}, [3]int{11, 21, 2}, [2]int{21, 2}},
		{"overlapping, one knew less", [3]int{10, 30, 3}, [3]int{11, 21, 1}, [2]int{30, 3}},
		{"the next in a row", [3]int{10, 20, 2}, [3]int{20, 40, 3}, [2]int{40, 3}},
		{"a first one after long", [3]int{10, 20, 5}, [3]int{90, 100, 1}, [2]int{100, 1}},
		{"none", [3]int{}, [3]int{10, 20, 1}, [2]int{20, 1}},
	} {
		if got := limiter.MergeBlocks(c.a, c.b); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if got := limiter.MergeBlocks(c.b, c.a); got != c.want {
			t.Errorf("%s, the other first: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestBlockedTakesAndChecksCostTheStoreNothing(t *testing.T) {
	bubble(t, "blocked", func(t *testing.T) {
		store := newFakeStore()
		e := instance(t, store, newFakeFeed(), blocking())
		first := provoke(t, e)
		reads, writes := store.counts()
		for range 100 {
			time.Sleep(time.Second)
			for _, d := range []count.Decision{mustTake(t, e), mustCheck(t, e)} {
				if d.Allowed || d.WouldAllow || !d.Blocked || d.Remaining != 0 || d.Used != 1 {
					t.Fatalf("%+v", d)
				}
			}
		}
		if r, w := store.counts(); r != reads || w != writes {
			t.Errorf("%d reads and %d writes while blocked", r-reads, w-writes)
		}
		time.Sleep(first.RetryAfter - 100*time.Second)
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("attempts while blocked have prolonged the block by %v", d.RetryAfter)
		}
	})
}

func TestBlockHoldsWhileTheStoreDoesNotAnswer(t *testing.T) {
	bubble(t, "store down", func(t *testing.T) {
		s := newFakeStore()
		p := blocking()
		p.OnStoreError = policy.OnStoreErrorAllow
		e := instance(t, s, newFakeFeed(), p)
		provoke(t, e)
		s.set(func() { s.onWrite = func(*store.Write) error { return store.ErrUnavailable } })
		if d := mustTake(t, e); d.Allowed || !d.Blocked || d.Degraded {
			t.Errorf("%+v", d)
		}
	})
}

func TestDenialsThatDoNotBlock(t *testing.T) {
	ownCounts := func(p *policy.Policy) { p.OnStoreError = policy.OnStoreErrorLocal }
	down := func(s *fakeStore) {
		s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
		s.afterRead = func(*store.State) error { return store.ErrUnavailable }
	}
	up := func(s *fakeStore) { s.onWrite, s.afterRead = nil, nil }
	for _, c := range []struct {
		name   string
		change func(*policy.Policy)
		deny   func(t *testing.T, store *fakeStore, e *limiter.Engine)
	}{
		{"a check", nil, func(t *testing.T, _ *fakeStore, e *limiter.Engine) { mustCheck(t, e) }},
		{"a check that would reserve", nil, func(t *testing.T, _ *fakeStore, e *limiter.Engine) {
			call := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute}
			if a, err := e.Do(t.Context(), &call); err != nil || a.Allowed {
				t.Errorf("allowed %v, %v", a.Allowed, err)
			}
		}},
		{"a record", nil, func(t *testing.T, _ *fakeStore, e *limiter.Engine) {
			if _, err := e.Record(t.Context(), somebody); err != nil {
				t.Error(err)
			}
		}},
		{"a shadow policy", func(p *policy.Policy) { p.Mode = policy.ModeShadow }, func(t *testing.T, _ *fakeStore, e *limiter.Engine) {
			if d := mustTake(t, e); d.WouldAllow {
				t.Error("not denied")
			}
		}},
		{"a policy that is off", func(p *policy.Policy) { p.Mode = policy.ModeOff }, func(t *testing.T, _ *fakeStore, e *limiter.Engine) {
			mustTake(t, e)
		}},
		{"a store that does not answer", nil, func(t *testing.T, store *fakeStore, e *limiter.Engine) {
			store.set(func() { down(store) })
			if _, err := e.Take(t.Context(), somebody); err == nil {
				t.Error("no error")
			}
			store.set(func() { up(store) })
			time.Sleep(time.Second)
		}},
		{"own counts", ownCounts, func(t *testing.T, store *fakeStore, e *limiter.Engine) {
			store.set(func() { down(store) })
			if d := mustTake(t, e); d.Allowed || !d.Degraded {
				t.Errorf("%+v", d)
			}
			store.set(func() { up(store) })
			time.Sleep(time.Second)
		}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store, policy := newFakeStore(), blocking()
			if c.change != nil {
				c.change(&policy)
			}
			e := instance(t, store, newFakeFeed(), policy)
			mustTake(t, e)
			c.deny(t, store, e)
			if d := mustCheck(t, e); d.Blocked || e.BlocksKnown() > 0 {
				t.Errorf("blocked %v, %d blocks", d.Blocked, e.BlocksKnown())
			}
		})
	}
}

func TestRecordUnderABlock(t *testing.T) {
	bubble(t, "record", func(t *testing.T) {
		policy := blocking()
		policy.Limits[0].Window = time.Hour
		e := instance(t, newFakeStore(), newFakeFeed(), policy)
		provoke(t, e)
		d, err := e.Record(t.Context(), somebody)
		if err != nil || d.Blocked || d.Recorded != count.RecordedYes || d.Used != 2 {
			t.Errorf("%+v (%v), want it recorded", d, err)
		}
	})
}

// TestReservationIsSettledUnderABlock checks that its answer has the right counts though the key is blocked: a record
// is never denied.
func TestReservationIsSettledUnderABlock(t *testing.T) {
	bubble(t, "reserve, then record", func(t *testing.T) {
		e := instance(t, newFakeStore(), newFakeFeed(), blocking())
		held, err := e.Do(t.Context(), &limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
		if err != nil || !held.Allowed {
			t.Fatalf("allowed %v, %v", held.Allowed, err)
		}
		provoke(t, e)
		again, err := e.Do(t.Context(), &limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute})
		if err != nil || again.Allowed || !again.Blocked || again.Reservation != "" {
			t.Errorf("a reservation under a block: %+v, %v", again, err)
		}
		settled, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}, Reservation: held.Reservation})
		if err != nil || !settled.Allowed || settled.Blocked || settled.Recorded != count.RecordedYes {
			t.Errorf("%+v, %v", settled, err)
		}
	})
}

func TestWaitOfTheDenialThatBlocks(t *testing.T) {
	for _, c := range []struct{ window, block, want time.Duration }{
		{time.Hour, 10 * time.Minute, time.Hour + 2*tolerance},
		{time.Minute, 10 * time.Minute, 10 * time.Minute},
	} {
		bubble(t, c.window.String(), func(t *testing.T) {
			policy := policyOf("sliding-log", 1, c.window)
			policy.BlockFor = c.block
			e := instance(t, newFakeStore(), nil, policy)
			if d := provoke(t, e); d.RetryAfter != c.want || d.Limits()[0].RetryAfter != c.want || d.ResetAfter < c.want {
				t.Errorf("retry after %v and %v, reset after %v, want %v", d.RetryAfter, d.Limits()[0].RetryAfter, d.ResetAfter, c.want)
			}
		})
	}
	bubble(t, "a limit that has room", func(t *testing.T) {
		p := blocking()
		p.Limits = append(p.Limits, policy.Limit{Algorithm: "sliding-log", Limit: 5, Window: time.Second})
		d := provoke(t, instance(t, newFakeStore(), nil, p))
		if v := d.Limits()[1].Verdict; !v.Allowed || v.RetryAfter != 0 || v.ResetAfter != time.Second+2*tolerance {
			t.Errorf("%+v, want it as if there were no block", v)
		}
	})
	bubble(t, "a limit of 0", func(t *testing.T) {
		policy := policyOf("sliding-log", 0, time.Minute)
		policy.BlockFor = 10 * time.Minute
		e := instance(t, newFakeStore(), nil, policy)
		for range 2 {
			if d := mustTake(t, e); d.Allowed || d.RetryAfter != count.Never {
				t.Errorf("%+v, want no wait to help", d.Verdict)
			}
		}
	})
}

// several returns a policy that blocks, one that does not, and one that counts denied
// attempts.
func several() []policy.Policy {
	blocks, free, all := blocking(), policyOf("fixed-window", 5, time.Hour), policyOf("sliding-log", 5, time.Hour)
	free.Name, all.Name, all.Count = "free", "all", policy.CountAll
	return []policy.Policy{blocks, free, all}
}

func TestSeveralDemandsOneOfThemBlocked(t *testing.T) {
	for name, store := range map[string]func() store.Store{
		"shared":    func() store.Store { return newFakeStore() },
		"exclusive": func() store.Store { return embedded.New(nil) },
	} {
		bubble(t, name, func(t *testing.T) {
			store, ops := store(), new(opsSeen)
			e := instanceWith(t, store, &limiter.Options{Feed: newFakeFeed(), Observer: limiter.Observer{Decided: ops.observe}}, several()...)
			provoke(t, e)
			ops.seen = nil
			call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{
				{Policy: "free", Identifier: "x"}, somebody, {Policy: "all", Identifier: "x"},
			}}
			for i := range 2 {
				a, err := e.Do(t.Context(), &call)
				if err != nil || a.Allowed || !a.Blocked || a.RetryAfter != 10*time.Minute {
					t.Fatalf("allowed %v, blocked %v, retry after %v, %v", a.Allowed, a.Blocked, a.RetryAfter, err)
				}
				free, blocked, all := a.Demands[0], a.Demands[1], a.Demands[2]
				if !blocked.Blocked || blocked.Allowed || free.Blocked || all.Blocked {
					t.Errorf("blocked: %v %v %v", free.Blocked, blocked.Blocked, all.Blocked)
				}
				if !free.Allowed || free.Used != 0 || free.Recorded != count.RecordedNo {
					t.Errorf("beside a block: %+v, want it checked only", free)
				}
				if !all.Allowed || all.Used != int64(i)+1 || all.Recorded != count.RecordedYes {
					t.Errorf("where denied attempts count: %+v", all)
				}
			}
			if want := slices.Repeat([]count.Op{count.OpTake}, 6); !slices.Equal(ops.seen, want) {
				t.Errorf("observed %v", ops.seen)
			}
			for _, hold := range []time.Duration{0, time.Minute} {
				a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpCheck, Demands: call.Demands, Reserve: hold})
				if err != nil || a.Allowed || a.Reservation != "" || a.Demands[0].Used != 0 || a.Demands[2].Used != 2 {
					t.Errorf("check, held for %v: %+v, %v", hold, a, err)
				}
			}
			a, err := e.Do(t.Context(), &limiter.Call{Op: count.OpRecord, Demands: call.Demands})
			if err != nil || !a.Allowed || a.Blocked || a.Demands[0].Used != 1 {
				t.Errorf("record: %+v, %v", a, err)
			}
		})
	}
}

// opsSeen is which operations were observed.
type opsSeen struct{ seen []count.Op }

func (o *opsSeen) observe(op count.Op, _ store.Key, _ int64, _ *count.Decision) {
	o.seen = append(o.seen, op)
}

func TestNothingIsHeldBesideABlock(t *testing.T) {
	bubble(t, "reserve", func(t *testing.T) {
		store := newFakeStore()
		e := instance(t, store, newFakeFeed(), several()...)
		call := limiter.Call{Op: count.OpCheck, Reserve: time.Minute, Demands: []limiter.Demand{{Policy: "free", Identifier: "x"}, somebody}}
		if a, err := e.Do(t.Context(), &call); err != nil || a.Reservation == "" {
			t.Fatalf("%+v, %v", a, err)
		}
		provoke(t, e)
		_, writes := store.counts()
		if a, err := e.Do(t.Context(), &call); err != nil || a.Reservation != "" || a.Demands[0].Used != 1 {
			t.Errorf("%+v, %v", a, err)
		}
		if _, now := store.counts(); now != writes {
			t.Errorf("%d writes", now-writes)
		}
	})
}

func TestSeveralDemandsBlockTheOneThatIsDenied(t *testing.T) {
	bubble(t, "several", func(t *testing.T) {
		policies := several()
		policies[1].BlockFor = time.Hour
		store, feed := newFakeStore(), newFakeFeed()
		e, other := instance(t, store, feed, policies...), instance(t, store, feed, policies...)
		mustTake(t, e)
		call := limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{{Policy: "free", Identifier: "x"}, somebody}}
		if a, err := e.Do(t.Context(), &call); err != nil || a.Allowed || a.Blocked || a.RetryAfter != 10*time.Minute {
			t.Errorf("%+v, %v", a, err)
		}
		if e.BlocksKnown() != 1 || !mustCheck(t, e).Blocked {
			t.Errorf("%d blocks", e.BlocksKnown())
		}
		time.Sleep(time.Second)
		if !mustCheck(t, other).Blocked {
			t.Error("the other instance has not heard of the block")
		}
	})
}

func TestBlocksAreBounded(t *testing.T) {
	bubble(t, "blocks", func(t *testing.T) {
		const most = 4 * limiter.BlockShards
		e := newEngine(t, embedded.New(nil), 0, blocking())
		e.BoundBlocks(most)
		running(t, e)
		var denied count.Decision
		for i := range 3 * most {
			d := somebody
			d.Identifier = keys.Identifier(fmt.Sprint("caller ", i))
			for range 2 {
				denied, _ = e.Take(t.Context(), d)
			}
			time.Sleep(time.Millisecond)
		}
		if n := e.BlocksKnown(); n > most || n < most*9/10 {
			t.Errorf("%d blocks in memory, bounded to %d", n, most)
		}
		last, first := caller(3*most-1), caller(0)
		if d, err := e.Check(t.Context(), last); err != nil || !d.Blocked {
			t.Errorf("the one that ends last was forgotten: %+v (%v), after %+v", d, err, denied.Verdict)
		}
		if d, err := e.Check(t.Context(), first); err != nil || d.Blocked {
			t.Errorf("the one that ends first was kept: %+v, %v", d, err)
		}
		time.Sleep(2 * time.Hour)
		if n := e.BlocksKnown(); n > 0 {
			t.Errorf("%d blocks in memory that nothing depends on", n)
		}
	})
}

func TestReloadOfAPolicyThatBlocks(t *testing.T) {
	bubble(t, "reload", func(t *testing.T) {
		e := instance(t, newFakeStore(), newFakeFeed(), blocking())
		provoke(t, e)
		without, shadow := policyOf("sliding-log", 1, time.Minute), blocking()
		shadow.Mode = policy.ModeShadow
		for i, p := range []policy.Policy{without, shadow, blocking()} {
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			if d := mustCheck(t, e); d.Blocked != (i == 2) {
				t.Errorf("policy %d: blocked %v", i, d.Blocked)
			}
		}
	})
}

func TestProblemsOfBlocks(t *testing.T) {
	for _, c := range []struct {
		name         string
		blockFor     time.Duration
		factor       int
		most         time.Duration
		path, excuse string
	}{
		{"a factor alone", 0, 2, 0, "block_factor", "has no meaning without block_for: give that too, such as 10m, or remove it"},
		{"a top alone", 0, 0, time.Hour, "block_max", "has no meaning without block_for: give that too, such as 10m, or remove it"},
		{"too short", time.Millisecond, 0, 0, "block_for", "1ms is out of range: use 1s to 31d"},
		{"too long", 32 * 24 * time.Hour, 0, 0, "block_for", "32d is out of range: use 1s to 31d"},
		{"negative", -time.Hour, 0, 0, "block_for", "-1h is out of range: use 1s to 31d"},
		{"part of a millisecond", time.Second + 1, 0, 0, "block_for", "1.000000001s is not whole milliseconds"},
		{"a factor too large", time.Minute, 11, time.Hour, "block_factor", "11 is out of range: use 1 (blocks do not grow) to 10"},
		{"a negative factor", time.Minute, -1, time.Hour, "block_factor", "-1 is out of range: use 1 (blocks do not grow) to 10"},
		{"a top below", time.Hour, 2, time.Minute, "block_max", "1m is shorter than block_for: use 1h or more"},
		{"no room to grow", time.Hour, 2, 0, "block_max",
			"blocks grow by block_factor 2, and block_for is 1h already: use more than that, up to 31d, or remove block_factor"},
		{"a top too high", time.Hour, 2, 32 * 24 * time.Hour, "block_max", "32d is out of range: use 1s to 31d"},
	} {
		p := policyOf("sliding-log", 1, time.Minute)
		p.BlockFor, p.BlockFactor, p.BlockMax = c.blockFor, c.factor, c.most
		found := p.Problems()
		if len(found) != 1 || found[0] != (policy.Problem{Path: c.path, Message: c.excuse}) {
			t.Errorf("%s: %v", c.name, found)
		}
	}
	p := policyOf("sliding-log", 1, time.Minute)
	p.BlockFor = time.Minute
	if found := p.Problems(); len(found) > 0 {
		t.Error(found)
	}
	if p = p.WithDefaults(); p.BlockFactor != 1 || p.BlockMax != time.Minute {
		t.Errorf("defaults: %d, %v", p.BlockFactor, p.BlockMax)
	}
}

// TestTakeThatWasUnderWayDuringAReset is denied by what a reset forgets meanwhile: it
// must not leave a block behind.
func TestTakeThatWasUnderWayDuringAReset(t *testing.T) {
	for _, by := range []string{"the same instance", "another one"} {
		bubble(t, by, func(t *testing.T) {
			s, feed := newFakeStore(), newFakeFeed()
			b := instance(t, s, feed, blocking())
			time.Sleep(10 * time.Millisecond) // b polls before a does
			a := instance(t, s, feed, blocking())
			resets := a
			if by != "the same instance" {
				resets = b
			}
			mustTake(t, a)
			reset := make(chan error, 1)
			s.set(func() {
				s.afterRead = func(*store.State) error {
					s.set(func() { s.afterRead = nil })
					time.Sleep(50 * time.Millisecond)
					go func() { reset <- resets.Reset(t.Context(), "p", somebody.Identifier) }() // the same instance makes it after the take
					time.Sleep(2*tolerance + 30*time.Millisecond)                                // before b polls
					return nil
				}
			})
			d, err := a.Take(t.Context(), somebody)
			if err != nil || d.Allowed {
				t.Fatalf("allowed %v, %v, want it denied by what was counted before", d.Allowed, err)
			}
			must(t, <-reset)
			// a knows of b's reset only once it has polled: it may believe in its block until then.
			for _, wait := range []time.Duration{15 * time.Millisecond, time.Second} { // when b has polled and a has not, and when both have
				time.Sleep(wait)
				for i, e := range []*limiter.Engine{a, b, instance(t, s, feed, blocking())} {
					if c := mustCheck(t, e); c.Blocked && (e != a || wait == time.Second) {
						t.Errorf("instance %d: blocked by a denial from before the reset (%+v)", i, d.Verdict)
					}
				}
			}
		})
	}
}
