package limiter_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/demand"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// wanderer is an engine's clock, which may be ahead before anybody knows.
type wanderer struct {
	ahead  atomic.Int64
	skewed atomic.Bool // it is known
}

func (w *wanderer) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// engine returns an engine that goes by w over store, and runs.
func (w *wanderer) engine(t *testing.T, s *fakeStore, policy policy.Policy) *limiter.Engine {
	t.Helper()
	return instanceWith(t, s, &limiter.Options{
		ClockTolerance: tolerance, StoreTimeout: timeout, Feed: s.Store.(store.Feed), Now: w.now, Skewed: w.skewed.Load,
	}, policy)
}

// A clock that goes ahead, which is not noticed at once, makes no instance pass over what
// others tell meanwhile.
func TestNewsAreHeardAfterAClockWentAhead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s, p := newFakeStore(), policyOf("sliding-log", 3, time.Hour)
		var clock wanderer
		e, other := clock.engine(t, s, p), toldEngine(t, s, p)
		running(t, other)
		time.Sleep(10 * time.Second)
		clock.ahead.Store(int64(time.Minute))
		time.Sleep(time.Second)
		block := demand.Override{Kind: policy.OverrideBlock, Until: store.InstantOf(time.Now().Add(time.Hour))}
		if _, err := other.Overrides.Set(t.Context(), somebody.Policy, somebody.Identifier, block); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		clock.skewed.Store(true)
		time.Sleep(30 * time.Second)
		clock.ahead.Store(0)
		time.Sleep(2 * time.Second)
		clock.skewed.Store(false)
		time.Sleep(time.Second)
		if d := mustTake(t, e); d.Allowed {
			t.Errorf("%+v: of a block that was told meanwhile nothing is known", d)
		}
	})
}

// A clock that went ahead rightly, as after a pause of the machine, is believed after some
// seconds: polls don't read back further for ever.
func TestPollsFollowAClockThatWasRight(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		feed := newFakeFeed()
		var clock wanderer
		o := &limiter.Options{Feed: feed, StoreTimeout: timeout, ClockTolerance: tolerance, Now: clock.now}
		instanceWith(t, newFakeStore(), o, blocking())
		time.Sleep(10 * time.Second)
		clock.ahead.Store(int64(time.Hour))
		for i, least := range []time.Duration{time.Hour, 0} { // in doubt at first, and then not
			time.Sleep(4 * time.Second)
			feed.mu.Lock()
			back := store.InstantOf(clock.now()).Sub(feed.since[len(feed.since)-1])
			feed.mu.Unlock()
			if back < least || back > least+10*time.Second {
				t.Errorf("poll %d reads back %v, not some seconds more than %v", i, back, least)
			}
		}
	})
}

// A denial that was remembered by a clock that was set back since is not used.
func TestDenialByAClockThatWasSetBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), policyOf("sliding-log", 3, time.Hour)
		var clock wanderer
		e := clock.engine(t, store, policy)
		for range 3 {
			mustTake(t, e)
		}
		time.Sleep(3 * timeout)
		clock.ahead.Store(int64(time.Minute))
		deny(t, e)
		if _, asked := store.asks(t, e); asked > 0 {
			t.Fatalf("%d requests for a denial that is known", asked)
		}
		clock.ahead.Store(0)
		if _, asked := store.asks(t, e); asked == 0 {
			t.Error("a denial is remembered for a minute and more")
		}
	})
}

// A unit under a conversion limit that was taken by a clock that was set back since is refunded
// or confirmed, once.
func TestReceiptsByAClockThatWasSetBack(t *testing.T) {
	for _, refund := range []bool{false, true} {
		inBubble(t, func(t *testing.T) {
			var clock wanderer
			e := limiter.New(embedded.New(&embedded.Options{Now: clock.now}), &limiter.Options{Now: clock.now})
			p := policyOf("conversion", 2, time.Hour)
			p.Limits[0].MinConversion = 50
			if err := e.SetPolicies([]policy.Policy{p}); err != nil {
				t.Fatal(err)
			}
			clock.ahead.Store(int64(30 * time.Minute))
			receipt := mustTakeReceipt(t, e)
			mustTakeReceipt(t, e)
			clock.ahead.Store(0)
			deny(t, e)
			time.Sleep(20 * time.Minute) // a block later
			for i := range 2 {
				var err error
				if refund {
					err = e.Refund(t.Context(), receipt)
				} else {
					_, err = e.Confirm(t.Context(), receipt)
				}
				if d, checked := e.Check(t.Context(), somebody); d.Used != 1 || checked != nil || err != nil && i == 0 {
					t.Errorf("refund %t, time %d: %d used of two, %v, %v", refund, i+1, d.Used, err, checked)
				}
			}
		})
	}
}
