package metrics

import (
	"context"
	"crypto/sha256"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/overshoot"
)

// TestOvershoot follows a caller past the limit for three windows.
func TestOvershoot(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1))
	for _, window := range []int{5, 1, 2} { // takes in each
		for range window {
			f.take("p")
		}
		if _, err := f.engine.Check(context.Background(), limiter.Demand{Policy: "p", Identifier: "a"}); err != nil {
			t.Fatal(err)
		}
		f.now = f.now.Add(time.Minute)
		f.metrics.overshoot.Flush(f.now)
	}
	f.want(`
		# HELP ratelimitd_overshoot_attempts Attempts of a key beyond its limit, from the first one until the window ends.
		# TYPE ratelimitd_overshoot_attempts histogram
		ratelimitd_overshoot_attempts_bucket{policy="p",le="1"} 1
		ratelimitd_overshoot_attempts_bucket{policy="p",le="2"} 1
		ratelimitd_overshoot_attempts_bucket{policy="p",le="3"} 1
		ratelimitd_overshoot_attempts_bucket{policy="p",le="5"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="10"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="20"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="50"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="100"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="1000"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="10000"} 2
		ratelimitd_overshoot_attempts_bucket{policy="p",le="+Inf"} 2
		ratelimitd_overshoot_attempts_sum{policy="p"} 5
		ratelimitd_overshoot_attempts_count{policy="p"} 2
		# HELP ratelimitd_overshoot_repeated_total Attempts of a key beyond its limit, without the first one in each window.
		# TYPE ratelimitd_overshoot_repeated_total counter
		ratelimitd_overshoot_repeated_total{policy="p"} 3
		# HELP ratelimitd_overshoot_times_limit Multiple of its limit that a key asked for, from its first attempt beyond it to the window's end.
		# TYPE ratelimitd_overshoot_times_limit histogram
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="1.1"} 0
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="1.5"} 0
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="2"} 1
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="3"} 1
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="5"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="10"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="20"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="50"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="100"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="1000"} 2
		ratelimitd_overshoot_times_limit_bucket{policy="p",le="+Inf"} 2
		ratelimitd_overshoot_times_limit_sum{policy="p"} 7
		ratelimitd_overshoot_times_limit_count{policy="p"} 2
		# HELP ratelimitd_overshoot_units_total Units beyond the limit that attempts asked for.
		# TYPE ratelimitd_overshoot_units_total counter
		ratelimitd_overshoot_units_total{policy="p"} 5
	`, "ratelimitd_overshoot_attempts", "ratelimitd_overshoot_repeated_total", "ratelimitd_overshoot_times_limit",
		"ratelimitd_overshoot_units_total")
}

// TestOvershootOfRecords holds that recorded units beyond the limit count, and an episode of a removed policy does not.
func TestOvershootOfRecords(t *testing.T) {
	f := newFixture(t, aPolicy("p", 9, 2), aPolicy("q", 1))
	for range 4 {
		if _, err := f.engine.Record(context.Background(), limiter.Demand{Policy: "p", Identifier: "a"}); err != nil {
			t.Fatal(err)
		}
	}
	f.take("q")
	f.take("q")
	if got := testutil.ToFloat64(f.metrics.decisions.repeated.WithLabelValues("p")); got != 1 {
		t.Errorf("%v repeated, want the fourth record", got)
	}
	if got := f.metrics.overshoot.Len(); got != 2 {
		t.Errorf("%d keys are over, want 2", got)
	}
	f.reload(aPolicy("p", 9, 2))
	f.now = f.now.Add(time.Hour)
	f.metrics.overshoot.Flush(f.now)
	if got := testutil.CollectAndCount(f.metrics.decisions.attempts); got != 1 {
		t.Errorf("%d policies have a histogram, want 1", got)
	}
}

// TestOvershootEndsWithTheWindow holds that an episode that begins within a fixed window ends with it.
func TestOvershootEndsWithTheWindow(t *testing.T) {
	f := newFixture(t, aPolicy("p", 1))
	f.now = f.now.Add(40 * time.Second)
	f.take("p")
	f.take("p")
	f.now = f.now.Add(20*time.Second - time.Millisecond)
	f.metrics.overshoot.Flush(f.now)
	if got := f.metrics.overshoot.Len(); got != 1 {
		t.Errorf("%d keys are over before the window ends, want 1", got)
	}
	f.now = f.now.Add(time.Millisecond)
	f.metrics.overshoot.Flush(f.now)
	if got := f.metrics.overshoot.Len(); got != 0 {
		t.Errorf("%d keys are over after it, want none", got)
	}
}

// TestOvershootOfALongDay holds that an episode ends with its calendar day, which has 25 hours when clocks are turned back,
// and that of a block after 24 hours.
func TestOvershootOfALongDay(t *testing.T) {
	f := newFixture(t, policy.Policy{Name: "p", Limits: []policy.Limit{
		{Algorithm: "fixed-window", Limit: 1, Calendar: policy.CalendarDay, Timezone: "Europe/Berlin"},
	}})
	f.now = time.Date(2026, 10, 24, 22, 0, 0, 0, time.UTC) // midnight there, and 25 hours to the next
	f.take("p")
	f.take("p")
	f.now = f.now.Add(25*time.Hour - time.Millisecond)
	f.metrics.overshoot.Flush(f.now)
	if got := f.metrics.overshoot.Len(); got != 1 {
		t.Errorf("%d keys are over before the day ends, want 1", got)
	}
	f.now = f.now.Add(time.Millisecond)
	f.metrics.overshoot.Flush(f.now)
	if got := f.metrics.overshoot.Len(); got != 0 {
		t.Errorf("%d keys are over after it, want none", got)
	}
	day := policy.Limit{Calendar: policy.CalendarDay, Window: policy.CalendarDay.Length()}
	over := &count.LimitDecision{Limit: &day, Verdict: count.Verdict{ResetAfter: 100 * time.Hour}}
	if got := episodeLasts(over, true); got != day.Window {
		t.Errorf("the episode of a block lasts %v, want %v", got, day.Window)
	}
}

// TestDegradedDecisionsAreNoOvershoot holds that units that the store did not count are left out.
func TestDegradedDecisionsAreNoOvershoot(t *testing.T) {
	p := aPolicy("p", 1)
	limits := []count.LimitDecision{{Limit: &p.Limits[0], Verdict: count.Verdict{Used: 7}}}
	for _, op := range ops {
		for _, allowed := range []bool{false, true} {
			verdict := count.Verdict{Allowed: allowed}
			d := &count.Decision{Policy: &p, Verdict: verdict, WouldAllow: allowed, Degraded: true}
			d.SetLimits(limits)
			outcome, _ := d.Outcome()
			if over := overLimit(op, outcome, d); over != nil {
				t.Errorf("%s, allowed %t: went past %v", op, allowed, over.Limit)
			}
		}
	}
}

// TestUnitsBeyondTheLimit holds that all units of a denied take count, and of a record those that did not fit.
func TestUnitsBeyondTheLimit(t *testing.T) {
	f := newFixture(t, aPolicy("p", 10), aPolicy("other", 10))
	for _, step := range []struct {
		do    func(context.Context, limiter.Demand) (count.Decision, error)
		cost  int64
		total int64 // beyond the limit, with those before
	}{
		{f.engine.Take, 4, 0}, {f.engine.Take, 7, 7}, {f.engine.Take, 6, 7}, {f.engine.Check, 5, 7},
		{f.engine.Record, 3, 10}, {f.engine.Take, 1, 11},
	} {
		if _, err := step.do(t.Context(), limiter.Demand{Policy: "p", Identifier: "a", Cost: step.cost}); err != nil {
			t.Fatal(err)
		}
		r, _ := f.metrics.Overshoot("p", 1)
		if counted := testutil.ToFloat64(f.metrics.decisions.units.WithLabelValues("p")); r.Units != step.total || counted != float64(r.Units) {
			t.Errorf("cost %d: %d units beyond, and the metric says %v; want %d", step.cost, r.Units, counted, step.total)
		}
	}
	if r, _ := f.metrics.Overshoot("p", 1); r.Attempts != 3 || r.Times.Max != 2.1 {
		t.Errorf("%+v", r)
	}
	if _, known := f.metrics.Overshoot("unknown", 1); known {
		t.Error("a policy that is not there is known")
	}
}

// TestUnitsOfARecordInTwo holds that the part of a record beyond the limit counts.
func TestUnitsOfARecordInTwo(t *testing.T) {
	f := newFixture(t, aPolicy("p", 10))
	for range 3 {
		if _, err := f.engine.Record(t.Context(), limiter.Demand{Policy: "p", Identifier: "a", Cost: 6}); err != nil {
			t.Fatal(err)
		}
	}
	if r, _ := f.metrics.Overshoot("p", 1); r.Units != 2+6 || r.Attempts != 2 {
		t.Errorf("%+v, want 2 and 6 units in two attempts", r)
	}
}

// TestOvershootOverReloads holds that counting goes on for a policy that stays, and begins anew for one that was removed for
// a while.
func TestOvershootOverReloads(t *testing.T) {
	f := newFixture(t, aPolicy("stays", 1), aPolicy("goes", 1))
	for range 3 {
		f.take("stays")
		f.take("goes")
	}
	f.now = f.now.Add(time.Second)
	f.reload(aPolicy("stays", 1))
	f.take("stays")
	f.reload(aPolicy("stays", 1), aPolicy("goes", 1))
	f.take("goes")
	if r, _ := f.metrics.Overshoot("stays", 1); r.Attempts != 3 || !r.Since.Equal(f.now.Add(-time.Second)) {
		t.Errorf("the one that stays: %+v", r)
	}
	if r, _ := f.metrics.Overshoot("goes", 1); r.Attempts != 1 || !r.Since.Equal(f.now) || r.Worst[0].Attempts != 1 {
		t.Errorf("the one that comes back: %+v", r)
	}
	f.want(`
		# HELP ratelimitd_overshoot_policy_keys Keys that are over their limit now, by policy.
		# TYPE ratelimitd_overshoot_policy_keys gauge
		ratelimitd_overshoot_policy_keys{policy="goes"} 1
		ratelimitd_overshoot_policy_keys{policy="stays"} 1
	`, "ratelimitd_overshoot_policy_keys")
	f.reload()
	if text := f.exposition(); strings.Contains(text, `policy="`) {
		t.Errorf("series of policies are left:\n%s", text)
	}
}

// BenchmarkObserve measures the cost of counting a decision.
func BenchmarkObserve(b *testing.B) {
	m := New(prometheus.NewRegistry(), nil)
	p := aPolicy("p", 1).WithDefaults()
	m.SetPolicies([]*policy.Policy{&p})
	verdict := count.Verdict{Allowed: true}
	limits := []count.LimitDecision{{Limit: &p.Limits[0], Verdict: verdict}}
	d := &count.Decision{Policy: &p, Verdict: verdict, WouldAllow: true}
	d.SetLimits(limits)
	b.ReportAllocs()
	for b.Loop() {
		m.Observe(count.OpTake, store.Key{}, 1, d)
	}
}

// BenchmarkObserveDenied measures the cost of counting a denial: of one key, of many keys in the table, and of more keys than
// fit.
func BenchmarkObserveDenied(b *testing.B) {
	for name, n := range map[string]int{"one": 1, "many": 10_000, "attack": 4 * overshoot.DefaultMaxKeys} {
		b.Run(name, func(b *testing.B) {
			m := New(prometheus.NewRegistry(), nil)
			p := aPolicy("p", 1).WithDefaults()
			p.Limits[0].Window = time.Hour
			m.SetPolicies([]*policy.Policy{&p})
			d := &count.Decision{Policy: &p}
			d.SetLimits([]count.LimitDecision{{Limit: &p.Limits[0]}})
			keys := make([]store.Key, n)
			for i := range keys {
				keys[i] = store.KeyFrom(sha256.Sum256([]byte(strconv.Itoa(i))))
				m.Observe(count.OpTake, keys[i], 1, d)
			}
			b.ReportAllocs()
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					m.Observe(count.OpTake, keys[i%n], 1, d)
				}
			})
		})
	}
}
