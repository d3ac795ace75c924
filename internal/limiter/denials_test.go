package limiter_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// toldEngine returns an engine over store that hears news of others over it.
func toldEngine(t testing.TB, store *fakeStore, policies ...policy.Policy) *limiter.Engine {
	t.Helper()
	e := limiter.New(store, &limiter.Options{
		ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(*embedded.Store),
	})
	if err := e.SetPolicies(policies); err != nil {
		t.Fatal(err)
	}
	return e
}

// deny takes from e until it is denied twice, the second time after a read.
func deny(t testing.TB, e *limiter.Engine) {
	t.Helper()
	for denied := 0; denied < 2; {
		if !mustTake(t, e).Allowed {
			denied++
		}
	}
}

// asks reports how many requests f gets from a take.
func (f *fakeStore) asks(t testing.TB, e *limiter.Engine) (d count.Decision, n int) {
	t.Helper()
	reads, writes := f.counts()
	d = mustTake(t, e)
	readsThen, writesThen := f.counts()
	return d, readsThen + writesThen - reads - writes
}

// A caller over a limit causes no request to the store once its units are final, and passes at the very end of the wait that
// it was answered.
func TestDeniedFromMemory(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := toldEngine(t, store, policyOf("sliding-log", 3, 8*time.Second))
		for range 3 {
			mustTake(t, e)
		}
		time.Sleep(2 * time.Second)
		deny(t, e)
		for range 20 {
			d, asked := store.asks(t, e)
			if asked > 0 || !d.Remembered || d.Allowed || d.Used != 3 || d.Recorded != count.RecordedNo {
				t.Fatalf("%d requests for a denial: %+v", asked, d)
			}
			time.Sleep(100 * time.Millisecond)
		}
		last := mustTake(t, e)
		time.Sleep(last.RetryAfter - time.Millisecond)
		if d := mustTake(t, e); d.Allowed || d.RetryAfter != time.Millisecond {
			t.Errorf("a millisecond early: allowed %v, retry after %v", d.Allowed, d.RetryAfter)
		}
		time.Sleep(time.Millisecond)
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("denied though its time had come: %+v", d)
		}
	})
}

// Where a reset is later than the clock of the instance that remembers a denial, the instance
// tells the later time.
func TestDeniedFromMemoryAfterALaterReset(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store, p := newFakeStore(), policyOf("sliding-log", 3, 8*time.Second)
		e := limiter.New(store, &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Feed: store.Store.(*embedded.Store),
			Now: func() time.Time { return time.Now().Add(-tolerance) },
		})
		must(t, e.SetPolicies([]policy.Policy{p}))
		other := toldEngine(t, store, p)
		must(t, other.Reset(t.Context(), somebody.Policy, somebody.Identifier))
		for range 3 {
			mustTake(t, e)
		}
		asked := mustTake(t, e)
		if d := mustTake(t, e); !d.Remembered || asked.Remembered || d.RetryAfter != asked.RetryAfter {
			t.Errorf("%+v from memory, %+v by the store", d, asked)
		}
	})
}

// Units that others may yet take back are read again soon.
func TestDenialOnYoungUnitsIsShort(t *testing.T) {
	for _, c := range []struct {
		name      string
		algorithm string
		others    bool
		old       time.Duration // of the units at the denial
		lasts     time.Duration
	}{
		{"final", "sliding-log", true, 3 * timeout, 10 * time.Second},
		{"own", "sliding-log", false, 0, timeout},
		{"of others", "sliding-log", true, 0, timeout / 10},
		{"counters", "fixed-window", true, 3 * timeout, timeout},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store := newFakeStore()
			p := policyOf(c.algorithm, 3, time.Hour)
			e := toldEngine(t, store, p)
			from := e
			if c.others {
				from = toldEngine(t, store, p)
			}
			for range 3 {
				mustTake(t, from)
			}
			time.Sleep(c.old)
			deny(t, e)
			time.Sleep(c.lasts - 20*time.Millisecond)
			if _, asked := store.asks(t, e); asked > 0 {
				t.Errorf("asked %d times before %v", asked, c.lasts)
			}
			time.Sleep(20 * time.Millisecond)
			if _, asked := store.asks(t, e); asked == 0 {
				t.Errorf("not asked again after %v", c.lasts)
			}
		})
	}
}

// All that makes room ends the memory, wherever it happens.
func TestMemoryOfADenialEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(t *testing.T, e, other *limiter.Engine, receipt string)
	}{
		{"refund here", func(t *testing.T, e, _ *limiter.Engine, receipt string) { must(t, e.Refund(t.Context(), receipt)) }},
		{"refund elsewhere", func(t *testing.T, _, other *limiter.Engine, receipt string) {
			must(t, other.Refund(t.Context(), receipt))
		}},
		{"reset here", func(t *testing.T, e, _ *limiter.Engine, _ string) {
			must(t, e.Reset(t.Context(), "p", somebody.Identifier))
		}},
		{"reset elsewhere", func(t *testing.T, _, other *limiter.Engine, _ string) {
			must(t, other.Reset(t.Context(), "p", somebody.Identifier))
		}},
		{"other limits", func(t *testing.T, e, _ *limiter.Engine, _ string) {
			p := policyOf("sliding-log", 4, 48*time.Hour)
			p.Limits = append(p.Limits, policy.Limit{Name: "hour", Algorithm: "sliding-log", Limit: 4, Window: time.Hour})
			must(t, e.SetPolicies([]policy.Policy{p}))
		}},
	} {
		bubble(t, c.name, func(t *testing.T) {
			store := newFakeStore()
			e := toldEngine(t, store, policyOf("sliding-log", 1, time.Hour))
			other := toldEngine(t, store, policyOf("sliding-log", 1, time.Hour))
			running(t, e)
			taken := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
			time.Sleep(3 * timeout)
			deny(t, e)
			c.end(t, e, other, taken.Receipt)
			time.Sleep(time.Second)
			if d := mustTake(t, e); !d.Allowed {
				t.Errorf("still denied: %+v", d)
			}
		})
	}
}

// A read that was under way when something was given back is not remembered.
func TestDenialReadBeforeARefund(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := toldEngine(t, s, policyOf("sliding-log", 1, time.Hour))
		taken := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		time.Sleep(3 * timeout)
		var once bool
		s.set(func() {
			s.afterRead = func(*store.State) error {
				if !once {
					once = true
					return e.Refund(context.Background(), taken.Receipt)
				}
				return nil
			}
		})
		if d := mustTake(t, e); d.Allowed {
			t.Fatalf("allowed by what was read before the refund: %+v", d)
		}
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("denied after the refund: %+v", d)
		}
	})
}

// Denied attempts that count are written each, and a record shows in the next answer.
func TestWhatIsNotRemembered(t *testing.T) {
	bubble(t, "count all", func(t *testing.T) {
		store := newFakeStore()
		p := policyOf("sliding-log", 1, time.Hour)
		p.Count = policy.CountAll
		e := toldEngine(t, store, p)
		mustTake(t, e)
		time.Sleep(3 * timeout)
		deny(t, e)
		if d := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}}); d.Allowed {
			t.Error("a check was allowed")
		}
		if _, asked := store.asks(t, e); asked == 0 {
			t.Error("an attempt that counts was not written")
		}
	})
	bubble(t, "cost", func(t *testing.T) {
		store := newFakeStore()
		e := toldEngine(t, store, policyOf("sliding-log", 2, 8*time.Second))
		mustTake(t, e)
		time.Sleep(4 * time.Second)
		mustTake(t, e)
		time.Sleep(2 * time.Second)
		deny(t, e)
		time.Sleep(2*time.Second + 2*tolerance)
		reads, _ := store.counts()
		two := somebody
		two.Cost = 2
		d, err := e.Take(t.Context(), two)
		if readsThen, _ := store.counts(); err != nil || d.Allowed || readsThen == reads {
			t.Errorf("two units where there is room for one: %+v, %v after %d reads", d, err, readsThen-reads)
		}
	})
	bubble(t, "without news", func(t *testing.T) {
		e := newEngine(t, newFakeStore(), 0, policyOf("sliding-log", 1, time.Hour))
		taken := mustDo(t, e, limiter.Call{Op: count.OpTake, Demands: []limiter.Demand{somebody}})
		time.Sleep(3 * timeout)
		deny(t, e)
		must(t, e.Refund(t.Context(), taken.Receipt))
		if d := mustTake(t, e); !d.Allowed {
			t.Errorf("denied after a refund: %+v", d)
		}
	})
	bubble(t, "record", func(t *testing.T) {
		store := newFakeStore()
		p := policyOf("sliding-log", 1, time.Hour)
		p.Limits = append(p.Limits, policy.Limit{Name: "day", Algorithm: "fixed-window", Limit: 30, Window: 24 * time.Hour})
		e := toldEngine(t, store, p)
		mustTake(t, e)
		time.Sleep(3 * timeout)
		deny(t, e)
		mustDo(t, e, limiter.Call{Op: count.OpRecord, Demands: []limiter.Demand{somebody}})
		if d := mustTake(t, e); d.Limits()[1].Used != 2 {
			t.Errorf("used %d of the day after two were counted", d.Limits()[1].Used)
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A caller over a limit that this instance alone has counted in running totals costs the store
// nothing for seconds: nobody else can take anything back.
func TestDeniedFromMemoryByOwnTotals(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := toldEngine(t, store, inRows("fixed-window", 3, time.Hour))
		for range 3 {
			mustTake(t, e)
		}
		deny(t, e)
		for range 20 {
			if d, asked := store.asks(t, e); asked > 0 || !d.Remembered || d.Allowed {
				t.Fatalf("%d requests for a denial: %+v", asked, d)
			}
			time.Sleep(200 * time.Millisecond)
		}
	})
}

// Totals of another instance may yet be lowered: a denial by them is remembered for a
// store timeout.
func TestDenialByTotalsOfOthersIsForgottenSoon(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		policy := inRows("fixed-window", 3, time.Hour)
		e, other := toldEngine(t, store, policy), toldEngine(t, store, policy)
		for range 2 {
			mustTake(t, e)
		}
		mustTake(t, other)
		deny(t, e)
		if _, asked := store.asks(t, e); asked > 0 {
			t.Errorf("%d requests at once", asked)
		}
		time.Sleep(timeout + time.Millisecond)
		if _, asked := store.asks(t, e); asked == 0 {
			t.Error("no request after a store timeout")
		}
	})
}

// A total that is lower than what was read of it is about to be stored: nothing of that
// is remembered for long.
func TestDenialByATotalInDoubtIsForgottenSoon(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := newFakeStore()
		e := toldEngine(t, s, inRows("fixed-window", 3, time.Hour))
		for range 2 {
			mustTake(t, e)
		}
		s.onWrite = func(w *store.Write) error { // stored, and not known to be
			_ = s.Store.Write(context.Background(), w)
			return store.ErrUnavailable
		}
		_, _ = e.Take(t.Context(), somebody)
		s.onWrite = func(*store.Write) error { return store.ErrUnavailable }
		over := somebody
		over.Cost = 2
		if d, err := e.Take(t.Context(), over); err != nil || d.Allowed {
			t.Fatalf("%+v, %v", d, err)
		}
		s.onWrite = nil
		time.Sleep(timeout + time.Millisecond)
		if d := mustTake(t, e); !d.Allowed || d.Used != 3 {
			t.Errorf("%+v: want the third admitted", d)
		}
	})
}

// Calls that wait for one key while it is found full are denied by that finding, and only records go on.
func TestWaitersAreDeniedByOneRead(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := toldEngine(t, store, policyOf("fixed-window", 3, time.Hour))
		for range 3 {
			mustTake(t, e)
		}
		deny(t, e)
		time.Sleep(5 * time.Second)
		store.set(func() { store.readTakes = time.Millisecond })
		before, _ := store.counts()
		if allowed, failed := takeAtOnce(e, 50); allowed > 0 || len(failed) > 0 {
			t.Errorf("%d allowed, %v", allowed, failed)
		}
		if after, _ := store.counts(); after != before+1 {
			t.Errorf("%d reads for 50 who wait", after-before)
		}
		if d, err := e.Record(t.Context(), somebody); err != nil || d.Recorded != count.RecordedYes || d.Used != 4 {
			t.Errorf("%+v, %v: want it recorded", d, err)
		}
	})
}

// A limit of none denies for ever, which no wait would change, also beside another one.
func TestLimitOfNone(t *testing.T) {
	for _, algorithm := range policy.Algorithms() {
		alone, beside := policyOf(algorithm, 0, time.Minute), policyOf("sliding-log", 5, time.Hour)
		if alone.IsConcurrent() || alone.Limits[0].InCell() {
			beside = policyOf(algorithm, 5, time.Hour)
		}
		beside.Limits = append(beside.Limits, alone.Limits...)
		for _, policy := range []policy.Policy{alone, beside} {
			bubble(t, algorithm, func(t *testing.T) {
				e := toldEngine(t, newFakeStore(), policy)
				running(t, e)
				for range 3 {
					if d := mustTake(t, e); d.Allowed || d.RetryAfter != count.Never {
						t.Errorf("%+v: want a denial for ever", d)
					}
				}
			})
		}
	}
}
