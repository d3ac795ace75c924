package limiter_test

import (
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

// denies is the definition of a conversion: as many as the limit, or more, were sent in the window,
// and fewer than the percentage of them are confirmed.
func denies(l policy.Limit, sent, confirmed int64) bool {
	if l.Unconfirmed {
		return sent-confirmed*100/int64(l.MinConversion) >= l.Limit
	}
	return sent >= l.Limit && confirmed*100 < int64(l.MinConversion)*sent
}

// unconfirmed returns how much of a conversion's limit is used: the limit less the units that can be
// sent one by one until it denies.
func unconfirmed(l policy.Limit, events []event, now store.Instant) *big.Rat {
	sent, confirmed, block := int64(0), int64(0), millis(l.Window)/policy.ConversionBlocks
	for _, e := range events {
		if e.at/block*block > now-millis(l.Window) && !e.refunded {
			sent += e.cost
			if e.confirmed {
				confirmed += e.cost
			}
		}
	}
	if denies(l, sent, confirmed) { // by how much too many were sent
		over := int64(0)
		for ; sent-over > l.Limit && denies(l, sent-over-1, confirmed); over++ {
		}
		return big.NewRat(l.Limit+over, 1)
	}
	left := int64(0)
	for ; left < l.Limit && !denies(l, sent+left, confirmed); left++ {
	}
	return big.NewRat(l.Limit-left, 1)
}

// probes reports whether l lets one unit pass at now that does not fit: there are probes, and the last
// unit was sent so long before. Of one that was refunded it is as if it had never been, if it was a probe.
func probes(l policy.Limit, events []event, now store.Instant) bool {
	if l.Probe == 0 || l.Limit == 0 {
		return false
	}
	for _, e := range events {
		if e.at > now-millis(l.Probe) && (!e.refunded || !e.probe) {
			return false
		}
	}
	return true
}

// TestConversionMatchesTheModel sends, confirms and refunds.
func TestConversionMatchesTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, "conversion")
		m, now := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}}), someMorning
		var events []event
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += store.Instant(rapid.Int64Range(0, 700).Draw(t, "later by ms"))
			if open := openEvents(events); len(open) > 0 && rapid.Bool().Draw(t, "by receipt") {
				e := &events[rapid.SampledFrom(open).Draw(t, "receipt")]
				e.confirmed = rapid.IntRange(0, 3).Draw(t, "what") > 0
				e.refunded = !e.confirmed
				m.GiveBack(now, e.at, e.cost, e.confirmed)
				wantConversion(t, m, l, events, now)
				continue
			}
			cost := rapid.Int64Range(1, max(1, min(2, l.Limit))).Draw(t, "cost")
			op := rapid.SampledFrom([]count.Op{count.OpTake, count.OpTake, count.OpTake, count.OpRecord}).Draw(t, "op")
			used := rounded(l, unconfirmed(l, events, now))
			probe := used+cost > l.Limit && cost == 1 && probes(l, events, now)
			fits := used+cost <= l.Limit || probe
			if got := m.Do(op, now, cost); got.Allowed != (fits || op == count.OpRecord) {
				t.Fatalf("%s of %d at +%d: allowed %v, and it fits: %v", op, cost, now-someMorning, got.Allowed, fits)
			}
			if fits || op == count.OpRecord {
				events = append(events, event{at: now, cost: cost, probe: probe})
			}
			wantConversion(t, m, l, events, now)
		}
	})
}

// openEvents returns the places of those that are neither confirmed nor refunded.
func openEvents(events []event) (open []int) {
	for i, e := range events {
		if !e.confirmed && !e.refunded {
			open = append(open, i)
		}
	}
	return open
}

// wantConversion fails the test unless m says of one unit more at now what the model does, and foretells
// the soonest instant at which it is allowed.
func wantConversion(t *rapid.T, m *limiter.Machine, l policy.Limit, events []event, now store.Instant) {
	got := m.Do(count.OpCheck, now, 1)
	if used := rounded(l, unconfirmed(l, events, now)); got.Used != used || got.Remaining != remaining(l, events, now) {
		t.Fatalf("at +%d: used %d, remaining %d, not %d of %d and %d",
			now-someMorning, got.Used, got.Remaining, used, l.Limit, remaining(l, events, now))
	}
	if got.Allowed || l.Limit == 0 {
		return
	}
	for at := now + 1; ; at++ {
		if remaining(l, events, at) > 0 {
			if wait := at.Sub(now); got.RetryAfter != wait {
				t.Fatalf("at +%d: retry after %v, not %v", now-someMorning, got.RetryAfter, wait)
			}
			return
		}
	}
}

// TestConversionNeverSendsMoreThanItMay goes through what callers do to a conversion: of all that was sent in
// the blocks of a window, no unit was sent when as many as the limit, or more, were, and too few confirmed, but
// for probes, and those come so long after the last unit as the limit says.
func TestConversionNeverSendsMoreThanItMay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimit(t, "conversion")
		m, now := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}}), someMorning
		var sent []event
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += store.Instant(rapid.Int64Range(0, 400).Draw(t, "later by ms"))
			if open := openEvents(sent); len(open) > 0 && rapid.IntRange(0, 2).Draw(t, "confirmed") == 0 {
				e := &sent[rapid.SampledFrom(open).Draw(t, "which")]
				e.confirmed = true
				m.GiveBack(now, e.at, e.cost, true)
			}
			if !m.Do(count.OpTake, now, 1).Allowed {
				continue
			}
			block, all, confirmed, last := millis(l.Window)/policy.ConversionBlocks, int64(0), int64(0), store.Instant(0)
			for _, e := range sent {
				last = max(last, e.at)
				if e.at/block*block > now-millis(l.Window) {
					all++
					if e.confirmed {
						confirmed++
					}
				}
			}
			if denies(l, all, confirmed) && (l.Probe == 0 || now < last+millis(l.Probe)) {
				t.Fatalf("at +%d: %d were sent, %d confirmed, the last at +%d, and one more is allowed",
					now-someMorning, all, confirmed, last-someMorning)
			}
			sent = append(sent, event{at: now, cost: 1})
		}
	})
}

// TestConversionTrace is the trace of the reference.
func TestConversionTrace(t *testing.T) {
	l := policy.Limit{
		Algorithm: "conversion", Limit: 4, Window: time.Minute, MinConversion: 50, Probe: 20 * time.Second,
	}
	m := limiter.NewMachine(policy.Policy{Name: "p", Limits: []policy.Limit{l}})
	var sent []store.Instant
	for _, step := range []struct {
		at        string
		confirm   int // the unit that is confirmed before; 0: none
		allowed   bool
		used      int64
		remaining int64
		retry     time.Duration
	}{
		{"12:00:01", 0, true, 1, 3, 0},
		{"12:00:02", 0, true, 2, 2, 0},
		{"12:00:03", 0, true, 3, 1, 0},
		{"12:00:04", 0, true, 4, 0, 0},
		{"12:00:05", 0, false, 4, 0, 19 * time.Second}, // 0 of 4
		{"12:00:10", 1, false, 4, 0, 14 * time.Second}, // 1 of 4
		{"12:00:12", 2, true, 4, 0, 0},                 // 2 of 4
		{"12:00:13", 0, false, 4, 0, 19 * time.Second}, // 2 of 5
		{"12:00:32", 0, true, 5, 0, 0},                 // a probe
		{"12:00:33", 0, false, 5, 0, 19 * time.Second}, // 2 of 6
		{"12:00:34", 3, true, 4, 0, 0},                 // 3 of 6
		{"12:01:00", 0, true, 4, 0, 0},                 // those before 12:00:06 have left: 0 of 4
	} {
		now := store.InstantOf(storetest.Clock(t, step.at))
		if step.confirm > 0 {
			m.GiveBack(now, sent[step.confirm-1], 1, true)
		}
		got := m.Do(count.OpTake, now, 1)
		if got.Allowed {
			sent = append(sent, now)
		}
		if got.Allowed != step.allowed || got.Used != step.used || got.Remaining != step.remaining || got.RetryAfter != step.retry {
			t.Errorf("%s: %+v, want %+v", step.at, got.Verdict, step)
		}
	}
	if !slices.IsSorted(sent) {
		t.Error(sent)
	}
}
