package limiter_test

import (
	"fmt"
	"math/big"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

func TestTraceOfPureFunctions(t *testing.T) {
	for _, trace := range storetest.Traces() {
		t.Run(trace.Name, func(t *testing.T) {
			m := limiter.NewMachine(trace.Policy())
			for i, step := range trace.Steps {
				got := m.Do(count.OpTake, store.InstantOf(storetest.Clock(t, step.At)), 1)
				trace.Check(t, i, &got)
			}
		})
	}
}

// event is what a model remembers of a recorded request.
type event struct {
	at   store.Instant
	cost int64

	confirmed, refunded, probe bool
}

// models has the definition of each algorithm, computed the slow way: what events
// use of limit l at now, as a fraction, since a sliding tail's or a bucket's may be one.
var models = map[string]func(l policy.Limit, events []event, now store.Instant) *big.Rat{
	"sliding-log": func(l policy.Limit, events []event, now store.Instant) *big.Rat {
		return sum(events, func(e event) bool { return e.at > now-millis(l.Window) })
	},
	"fixed-window": func(l policy.Limit, events []event, now store.Instant) *big.Rat {
		return sum(events, func(e event) bool { return window(e.at, l) == window(now, l) })
	},
	"sliding-window": func(l policy.Limit, events []event, now store.Instant) *big.Rat {
		bucket := millis(l.Window) / store.Instant(l.Buckets)
		return sum(events, func(e event) bool { return e.at/bucket*bucket > now-millis(l.Window) })
	},
	"sliding-tail": func(l policy.Limit, events []event, now store.Instant) *big.Rat {
		current := sum(events, func(e event) bool { return window(e.at, l) == window(now, l) })
		previous := sum(events, func(e event) bool { return window(e.at, l) == window(now, l)-1 })
		elapsed := now - window(now, l)*millis(l.Window)
		share := big.NewRat(int64(millis(l.Window)-elapsed), int64(millis(l.Window)))
		return current.Add(current, previous.Mul(previous, share))
	},
	"leaky-bucket": drained,
	"token-bucket": drained,
	"conversion":   unconfirmed,
	"concurrent": func(l policy.Limit, events []event, now store.Instant) *big.Rat { // that nobody releases
		return sum(events, func(e event) bool { return e.at > now-millis(l.Window) })
	},
}

// drained returns what a bucket holds at now that events were added to and that
// loses its limit in every window.
func drained(l policy.Limit, events []event, now store.Instant) *big.Rat {
	fill, at := new(big.Rat), now
	for _, e := range append(slices.Clone(events), event{at: now}) {
		if leak := big.NewRat(int64(e.at-at), int64(millis(l.Window))); leak.Sign() > 0 {
			fill.Sub(fill, leak.Mul(leak, big.NewRat(l.Limit, 1)))
		}
		if fill.Sign() < 0 {
			fill.SetInt64(0)
		}
		fill.Add(fill, big.NewRat(e.cost, 1))
		at = e.at
	}
	return fill
}

func sum(events []event, counts func(event) bool) *big.Rat {
	total := new(big.Rat)
	for _, e := range events {
		if counts(e) {
			total.Add(total, big.NewRat(e.cost, 1))
		}
	}
	return total
}

func millis(d time.Duration) store.Instant { return store.Instant(d.Milliseconds()) }

// window returns the number of the window that at falls into.
func window(at store.Instant, l policy.Limit) store.Instant {
	if l.Calendar != "" {
		zone, _ := time.LoadLocation(l.Timezone)
		return store.Instant(firstDayOf(l.Calendar, at.Time().In(zone)))
	}
	return at / millis(l.Window)
}

// rounded returns used as the limit rounds it.
func rounded(l policy.Limit, used *big.Rat) int64 {
	whole := new(big.Int).Quo(used.Num(), used.Denom()).Int64()
	if !used.IsInt() && (l.Rounding == policy.RoundUp || isBucket(l)) {
		whole++
	}
	return whole
}

func isBucket(l policy.Limit) bool {
	return l.Algorithm == "leaky-bucket" || l.Algorithm == "token-bucket"
}

// remaining returns how many units can be spent at once after events.
func remaining(l policy.Limit, events []event, now store.Instant) int64 {
	left := max(0, l.Capacity()-rounded(l, models[l.Algorithm](l, events, now)))
	if left == 0 && probes(l, events, now) {
		return 1
	}
	return left
}

func TestEveryAlgorithmHasAModel(t *testing.T) {
	for _, name := range policy.Algorithms() {
		if models[name] == nil {
			t.Errorf("%s has no model here: its properties are untested", name)
		}
	}
}

// drawLimit draws a limit of a few units in a few seconds.
func drawLimit(t *rapid.T, algorithm string) policy.Limit {
	l := policy.Limit{
		Algorithm: algorithm,
		Limit:     rapid.Int64Range(0, 8).Draw(t, "limit"),
		Window:    time.Duration(rapid.Int64Range(1000, 4000).Draw(t, "window")) * time.Millisecond,
	}
	if algorithm == "sliding-window" {
		l.Buckets = rapid.IntRange(policy.MinBuckets, 12).Draw(t, "buckets")
		l.Window = l.Window.Truncate(time.Duration(l.Buckets)*time.Millisecond) + time.Duration(l.Buckets)*time.Millisecond
	}
	if algorithm == "sliding-tail" {
		l.Rounding = rapid.SampledFrom([]policy.Rounding{policy.RoundDown, policy.RoundUp}).Draw(t, "rounding")
	}
	if algorithm == "fixed-window" && rapid.Bool().Draw(t, "by the calendar") {
		l.Calendar = rapid.SampledFrom(calendars).Draw(t, "calendar")
		l.Timezone = rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"}).Draw(t, "zone")
		l.Window = l.Calendar.Length()
	}
	if algorithm == "conversion" {
		l.MinConversion = rapid.IntRange(1, 100).Draw(t, "min_conversion")
		l.Window = l.Window.Truncate(policy.ConversionBlocks * time.Millisecond)
		if l.Unconfirmed = rapid.Bool().Draw(t, "unconfirmed"); l.Unconfirmed {
			return l
		}
		l.Probe = time.Duration(rapid.Int64Range(0, l.Window.Milliseconds()).Draw(t, "probe")) * time.Millisecond
	}
	if algorithm == "token-bucket" && l.Limit > 0 {
		l.Burst = rapid.Int64Range(0, 16).Draw(t, "burst")
	}
	return l
}

// eachAlgorithm runs property for every algorithm over drawn limits and ways of
// counting.
func eachAlgorithm(t *testing.T, property func(t *rapid.T, p policy.Policy)) {
	for _, name := range policy.Algorithms() {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			p := policy.Policy{Name: "p", Limits: []policy.Limit{drawLimit(t, name)}}
			if !p.Limits[0].InCell() && !p.IsConcurrent() {
				p.Count = rapid.SampledFrom([]policy.CountMode{policy.CountAdmitted, policy.CountAll}).Draw(t, "count")
			}
			if found := p.Problems(); len(found) > 0 {
				t.Fatal(found)
			}
			property(t, p)
		}))
	}
}

const someMorning store.Instant = 1_772_445_600_000

// drawStart draws when the requests under l begin: in the middle of something or, by a
// calendar, shortly before clocks are turned.
func drawStart(t *rapid.T, l policy.Limit) store.Instant {
	const inMarch, inOctober, in2018 = 1_774_656_000_000, 1_792_843_200_000, 1_541_246_400_000
	if l.Calendar == "" {
		return someMorning
	}
	return rapid.SampledFrom([]store.Instant{someMorning, inMarch, inOctober, in2018}).Draw(t, "start")
}

// drawLater draws how many milliseconds the next request under l comes after another.
func drawLater(t *rapid.T, l policy.Limit) store.Instant {
	most := store.Instant(1500)
	if l.Calendar != "" {
		most = millis(l.Window) / 2
	}
	return store.Instant(rapid.Int64Range(0, int64(most)).Draw(t, "later by ms"))
}

func TestDecisionsMatchTheModel(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		l, model, m := p.Limits[0], models[p.Limits[0].Algorithm], limiter.NewMachine(p)
		var events []event
		now := drawStart(t, l)
		for range rapid.IntRange(1, 30).Draw(t, "requests") {
			now += drawLater(t, l)
			cost := rapid.Int64Range(1, max(1, l.Capacity())).Draw(t, "cost")
			op := rapid.SampledFrom([]count.Op{count.OpTake, count.OpTake, count.OpRecord, count.OpCheck}).Draw(t, "op")
			fits := rounded(l, new(big.Rat).Add(model(l, events, now), big.NewRat(cost, 1))) <= l.Capacity()
			probe := !fits && cost == 1 && probes(l, events, now)
			fits = fits || probe
			got := m.Do(op, now, cost)
			if want := fits || op == count.OpRecord; got.Allowed != want {
				t.Fatalf("%s of %d at +%d: allowed %v, want %v", op, cost, now-someMorning, got.Allowed, want)
			}
			if op != count.OpCheck && (got.Allowed || p.Count == policy.CountAll) {
				events = append(events, event{at: now, cost: cost, probe: probe})
			}
			used := rounded(l, model(l, events, now))
			if got.Used != used || got.Remaining != remaining(l, events, now) {
				t.Fatalf("%s of %d at +%d: used %d, remaining %d, not %d of %d", op, cost, now-someMorning, got.Used, got.Remaining, used, l.Capacity())
			}
		}
	})
}

// crowd returns a machine that some requests have been made to, and the instant of
// the last.
func crowd(t *rapid.T, p policy.Policy) (*limiter.Machine, store.Instant) {
	m, now := limiter.NewMachine(p), drawStart(t, p.Limits[0])
	for range rapid.IntRange(0, 20).Draw(t, "requests") {
		now += drawLater(t, p.Limits[0])
		op := rapid.SampledFrom([]count.Op{count.OpTake, count.OpRecord}).Draw(t, "op")
		m.Do(op, now, rapid.Int64Range(1, 5).Draw(t, "cost"))
	}
	return m, now
}

func TestCheckForetellsTake(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		m, now := crowd(t, p)
		cost := rapid.Int64Range(1, 5).Draw(t, "cost")
		if check, take := m.Do(count.OpCheck, now, cost), m.Do(count.OpTake, now, cost); check.Allowed != take.Allowed {
			t.Fatalf("check says %v, take %v", check.Allowed, take.Allowed)
		}
	})
}

func TestRetryAfterIsTheSoonestMoment(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		m, now := crowd(t, p)
		cost := rapid.Int64Range(1, max(1, p.Limits[0].Capacity())).Draw(t, "cost")
		got := m.Do(count.OpTake, now, cost)
		switch {
		case got.Allowed:
			if got.RetryAfter != 0 {
				t.Fatalf("allowed, and retry after %v", got.RetryAfter)
			}
		case got.RetryAfter == count.Never:
			if p.Limits[0].Capacity() != 0 {
				t.Fatalf("cost %d of %d: never", cost, p.Limits[0].Capacity())
			}
		default:
			if again := m.Do(count.OpCheck, now.Add(got.RetryAfter), cost); !again.Allowed {
				t.Fatalf("denied after waiting %v: %+v", got.RetryAfter, again.Verdict)
			}
			if early := m.Do(count.OpCheck, now.Add(got.RetryAfter-time.Millisecond), cost); early.Allowed {
				t.Fatalf("allowed 1 ms before %v were over", got.RetryAfter)
			}
		}
	})
}

// TestKnownSumsChangeNothing decides by logs whose sums are known as by those that are added
// up: of several windows over one log, resets among it.
func TestKnownSumsChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy.Policy{Name: "p"}
		for _, w := range rapid.SliceOfNDistinct(rapid.IntRange(1, 60), 1, 3, rapid.ID).Draw(t, "windows") {
			p.Limits = append(p.Limits, policy.Limit{
				Algorithm: "sliding-log", Limit: rapid.Int64Range(1, 30).Draw(t, "limit"), Window: time.Duration(w) * time.Second,
			})
		}
		added, known, now := limiter.NewMachine(p), limiter.NewMachine(p), drawStart(t, p.Limits[0])
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(-500, 4000).Draw(t, "pause")) * time.Millisecond)
			op := rapid.SampledFrom([]count.Op{count.OpCheck, count.OpTake, count.OpTake, count.OpRecord}).Draw(t, "op")
			cost := rapid.Int64Range(1, p.Limits[0].Limit).Draw(t, "cost")
			if rapid.IntRange(0, 19).Draw(t, "reset") == 0 {
				added.Reset(now)
				known.Reset(now)
			}
			known.KnowSums()
			want, got := added.Do(op, now, cost), known.Do(op, now, cost)
			for i := range want.Limits() {
				if got.Limits()[i].Verdict != want.Limits()[i].Verdict {
					t.Fatalf("%v of %d at %d: %+v, want %+v", op, cost, now, got.Limits()[i].Verdict, want.Limits()[i].Verdict)
				}
			}
		}
	})
}

func TestResetAfterIsWhenTheLimitIsWhole(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		m, now := crowd(t, p)
		got := m.Do(count.OpCheck, now, 1)
		l := p.Limits[0].Capacity()
		if whole := m.Do(count.OpCheck, now.Add(got.ResetAfter), 1); whole.Remaining != l || l > 0 && whole.Used != 0 {
			t.Fatalf("%d of %d remain after %v", whole.Remaining, l, got.ResetAfter)
		}
		if got.ResetAfter == 0 || l == 0 {
			return
		}
		if early := m.Do(count.OpCheck, now.Add(got.ResetAfter-time.Millisecond), 1); early.Remaining == l && early.Used == 0 {
			t.Fatalf("whole 1 ms before %v were over", got.ResetAfter)
		}
	})
}

func TestRemainingCanBeSpentAtOnceAndNotOneMore(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		m, now := crowd(t, p)
		left := m.Do(count.OpCheck, now, 1).Remaining
		if left < 0 {
			t.Fatalf("remaining %d", left)
		}
		if m.Do(count.OpCheck, now, left+1).Allowed {
			t.Fatalf("%d remain, and %d fit", left, left+1)
		}
		if left > 0 && !m.Do(count.OpTake, now, left).Allowed {
			t.Fatalf("%d remain, and do not fit", left)
		}
	})
}

func TestSlidingLogNeverAdmitsMoreThanTheLimitInAnyWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy.Policy{Name: "p", Limits: []policy.Limit{drawLimit(t, "sliding-log")}}
		m, l := limiter.NewMachine(p), p.Limits[0]
		var admitted []event
		now := someMorning
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			now += store.Instant(rapid.Int64Range(0, 900).Draw(t, "later by ms"))
			cost := rapid.Int64Range(1, 3).Draw(t, "cost")
			if m.Do(count.OpTake, now, cost).Allowed {
				admitted = append(admitted, event{at: now, cost: cost})
			}
		}
		for i, first := range admitted {
			total := int64(0)
			for _, e := range admitted[i:] {
				if e.at < first.at+millis(l.Window) {
					total += e.cost
				}
			}
			if total > l.Limit {
				t.Fatalf("%d of %d within %v from +%d", total, l.Limit, l.Window, first.at-someMorning)
			}
		}
	})
}

// TestClockThatStepsBackAdmitsNoMore compares a clock that steps back with one
// that stands still meanwhile: at every request it must admit no more.
func TestClockThatStepsBackAdmitsNoMore(t *testing.T) {
	eachAlgorithm(t, func(t *rapid.T, p policy.Policy) {
		m, now := crowd(t, p)
		back := now - store.Instant(rapid.Int64Range(0, 5*int64(millis(p.Limits[0].Window))).Draw(t, "back by ms"))
		cost := rapid.Int64Range(1, 5).Draw(t, "cost")
		before, after := m.Do(count.OpCheck, now, cost), m.Do(count.OpTake, back, cost)
		if after.Allowed && !before.Allowed {
			t.Fatalf("denied, and allowed after %d ms back", now-back)
		}
		for _, n := range []int64{after.Used, after.Remaining, int64(after.ResetAfter)} {
			if n < 0 {
				t.Fatalf("a negative number: %+v", after.Verdict)
			}
		}
	})
}

func TestCostsNearTheBoundsDoNotOverflow(t *testing.T) {
	for _, name := range []string{"fixed-window", "sliding-tail", "leaky-bucket", "token-bucket"} {
		t.Run(name, func(t *testing.T) {
			l := policy.Limit{Algorithm: name, Limit: policy.MaxLimit, Window: policy.MaxWindow}
			m, now := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}}), someMorning
			for i := range 2000 {
				got := m.Do(count.OpRecord, now, policy.MaxCost)
				if want := int64(i+1) * policy.MaxCost; got.Used != want || got.Remaining != max(0, policy.MaxLimit-want) {
					t.Fatalf("used %d, remaining %d after %d", got.Used, got.Remaining, i+1)
				}
			}
			if later := m.Do(count.OpCheck, now.Add(l.Window), 1); later.Used < 0 || later.Used > 1000*policy.MaxCost {
				t.Errorf("a window later: %+v", later.Verdict)
			}
		})
	}
}

func TestSeveralLimitsDecideAsOne(t *testing.T) {
	p := policy.Policy{Name: "sms", Limits: []policy.Limit{
		{Name: "cooldown", Algorithm: "sliding-log", Limit: 1, Window: 30 * time.Second},
		{Name: "per-hour", Algorithm: "sliding-log", Limit: 3, Window: time.Hour},
		{Name: "per-day", Algorithm: "fixed-window", Limit: 4, Window: 24 * time.Hour},
	}}
	m := limiter.NewMachine(p)
	for _, step := range []struct {
		after    time.Duration
		allowed  bool
		tightest string
		retry    time.Duration
	}{
		{0, true, "cooldown", 0},
		{10 * time.Second, false, "cooldown", 20 * time.Second},
		{30 * time.Second, true, "cooldown", 0},
		{60 * time.Second, true, "cooldown", 0},
		{61 * time.Second, false, "per-hour", time.Hour - 61*time.Second},
		{time.Hour, true, "cooldown", 0},
		{time.Hour + 30*time.Second, false, "per-day", 8*time.Hour - 30*time.Second},
	} {
		now := store.InstantOf(time.Date(2026, 3, 2, 15, 0, 0, 0, time.UTC).Add(step.after))
		got := m.Do(count.OpTake, now, 1)
		if got.Allowed != step.allowed || got.TightestLimit().Name != step.tightest || got.RetryAfter != step.retry {
			t.Errorf("after %v: allowed %v by %s, retry after %v, want %v by %s, %v",
				step.after, got.Allowed, got.TightestLimit().Name, got.RetryAfter, step.allowed, step.tightest, step.retry)
		}
	}
}

func TestResetForgets(t *testing.T) {
	for _, name := range policy.Algorithms() {
		m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{{Algorithm: name, Limit: 2, Window: time.Minute}}})
		m.Do(count.OpRecord, someMorning, 2)
		m.Reset(someMorning)
		if got := m.Do(count.OpCheck, someMorning+1, 1); !got.Allowed || got.Used != 0 {
			t.Errorf("%s: allowed %v, used %d after a reset", name, got.Allowed, got.Used)
		}
		if got := m.Do(count.OpCheck, someMorning.Add(time.Minute), 1); got.Used != 0 {
			t.Errorf("%s: used %d a window after a reset", name, got.Used)
		}
	}
}

func TestEventIDsDifferAndKeepTheirInstant(t *testing.T) {
	const n = 30_000 // more than a millisecond has ticks
	next := store.NewEventIDs().Next
	ids := make(map[store.EventID]bool, n)
	for i := range n {
		at := someMorning + store.Instant(i%2) // back and forth
		id := next(at)
		if id.Instant() != at {
			t.Fatalf("%v is dated %d, want %d", id, id.Instant(), at)
		}
		ids[id] = true
	}
	if len(ids) != n {
		t.Errorf("%d ids of %d differ", len(ids), n)
	}
	if id := next(someMorning); id[6]>>4 != 1 || id[8]>>6 != 0b10 || id[10]&1 != 1 {
		t.Errorf("%v is no version 1 UUID with a random node", id)
	}
}

// TestCountsLastAsLongAsTheyMatter has when a counter starts, in windows that start
// with the minute, and for how long it is asked for.
func TestCountsLastAsLongAsTheyMatter(t *testing.T) {
	for name, want := range map[string]struct{ starts, lasts time.Duration }{
		"fixed-window":   {0, time.Minute},
		"sliding-window": {12 * time.Second, time.Minute},
		"sliding-tail":   {0, 2 * time.Minute},
	} {
		l := policy.Limit{Algorithm: name, Limit: 1, Window: time.Minute}
		got := limiter.CountOf(l, someMorning.Add(17*time.Second))
		if got.Start != someMorning.Add(want.starts) || got.Expires != got.Start.Add(want.lasts) {
			t.Errorf("%s: from %v to %v", name, got.Start.Time(), got.Expires.Time())
		}
	}
}

func TestAlgorithmsAreListedOnce(t *testing.T) {
	names := policy.Algorithms()
	slices.Sort(names)
	if got := fmt.Sprint(slices.Compact(slices.Clone(names))); got != fmt.Sprint(names) {
		t.Errorf("%v", names)
	}
}
