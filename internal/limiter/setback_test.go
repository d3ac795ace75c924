package limiter_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// wanderer is an engine's clock, which may be ahead before anybody knows.
type wanderer struct {
	ahead  atomic.Int64
	skewed atomic.Bool // it is known
}

func (w *wanderer) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

// engine returns an engine that goes by w over store, and runs.
func (w *wanderer) engine(t *testing.T, store *fakeStore, policy limiter.Policy) *limiter.Engine {
	t.Helper()
	return instanceWith(t, store, &limiter.Options{
		ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(limiter.Feed), Now: w.now, Skewed: w.skewed.Load,
	}, policy)
}

// A clock that goes ahead, which is not noticed at once, makes no instance pass over what
// others tell meanwhile.
func TestNewsAreHeardAfterAClockWentAhead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), policyOf("sliding-log", 3, time.Hour)
		var clock wanderer
		e, other := clock.engine(t, store, policy), toldEngine(t, store, policy)
		running(t, other)
		time.Sleep(10 * time.Second)
		clock.ahead.Store(int64(time.Minute))
		time.Sleep(time.Second)
		block := limiter.Override{Kind: limiter.OverrideBlock, Until: limiter.InstantOf(time.Now().Add(time.Hour))}
		if _, err := other.SetOverride(t.Context(), somebody.Policy, somebody.Identifier, block); err != nil {
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
			back := limiter.InstantOf(clock.now()).Sub(feed.since[len(feed.since)-1])
			feed.mu.Unlock()
			if back < least || back > least+10*time.Second {
				t.Errorf("poll %d reads back %v, not some seconds more than %v", i, back, least)
			}
		}
	})
}

// An allowance for a window that a clock thought to be now is not spent when that comes: in
// the store it has expired by then.
func TestAllowanceByAClockThatWasSetBack(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		bubble(t, map[bool]string{false: "asked for meanwhile", true: "quiet"}[quiet], func(t *testing.T) {
			const far = 10 * time.Minute
			var clock wanderer
			e := clock.engine(t, newFakeStore(), standingRows(time.Minute))
			stand(t, e)
			clock.ahead.Store(int64(far))
			stand(t, e)
			if d := takeOf(t, e, "by the wrong clock"); !d.Leased {
				t.Fatalf("%+v: no allowance", d)
			}
			clock.ahead.Store(0)
			if !quiet {
				stand(t, e)
			}
			time.Sleep(far)
			if d := takeOf(t, e, "when the window has come"); d.Leased {
				t.Errorf("%+v: by an allowance that nobody else counts", d)
			}
			time.Sleep(2 * time.Minute)
			stand(t, e)
			if d := takeOf(t, e, "later"); !d.Leased {
				t.Errorf("%+v: there is no allowance any more", d)
			}
		})
	}
}

// A lease that is dated by a clock which was set back since serves nobody, and is given back.
func TestLeaseByAClockThatWasSetBack(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		var clock wanderer
		e := clock.engine(t, store, earlyRows(time.Minute))
		clock.ahead.Store(int64(10 * time.Minute))
		mustTake(t, e)
		if d := mustTake(t, e); !d.Leased {
			t.Fatalf("%+v: no lease", d)
		}
		clock.ahead.Store(0)
		if d := mustTake(t, e); d.Leased {
			t.Errorf("%+v: by a lease of a window that is not yet", d)
		}
		if d := mustTake(t, e); !d.Leased {
			t.Errorf("%+v: no new lease", d)
		}
		clock.ahead.Store(int64(10 * time.Minute))
		takeOf(t, e, "somebody else")
		clock.ahead.Store(0)
		time.Sleep(3 * time.Second)
		if total := store.total(t); total.Units != 1 {
			t.Errorf("%+v: want what is left given back", total)
		}
	})
}

// What a clock that was set back remembers of a denial is not gone by.
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

// A note of high keys that can't be read is no reason to end, nor one to make allowances:
// it may be of any key.
func TestHighKeyThatCannotBeRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), standingRows(time.Hour)
		other := toldEngine(t, store, policy)
		running(t, other)
		stand(t, other)
		if _, err := other.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: "high", Cost: 900}); err != nil {
			t.Fatal(err)
		}
		var note limiter.Write
		store.set(func() {
			for i := range store.writes {
				if isNote(&store.writes[i]) {
					note = store.writes[i]
				}
			}
		})
		damaged := note.Put[0]
		damaged.Limit = limiter.LimitID(strings.Repeat("ab", limiter.KeySize+8))
		note.Put = []limiter.Tally{damaged}
		must(t, store.Write(t.Context(), &note))
		e := toldEngine(t, store, policy)
		running(t, e)
		stand(t, e)
		synctest.Wait()
		if d := takeOf(t, e, "somebody else"); d.Leased {
			t.Errorf("%+v: beside a note that can't be read", d)
		}
	})
}

// A lease that is dated later than its instance's clock says, because a reset was, is gone by.
func TestLeaseAfterALaterReset(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, policy := newFakeStore(), earlyRows(time.Hour)
		var ahead wanderer
		ahead.ahead.Store(int64(5 * time.Second))
		must(t, ahead.engine(t, store, policy).Reset(t.Context(), somebody.Policy, somebody.Identifier))
		e := toldEngine(t, store, policy)
		mustTake(t, e)
		if d := mustTake(t, e); !d.Leased || d.Used != 2 {
			t.Errorf("%+v: want a unit of a lease", d)
		}
	})
}
