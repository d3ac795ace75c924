package limiter_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// manyCounts returns policies that count a limit in each way there is.
func manyCounts(limit int64, window time.Duration) map[string]policy.Policy {
	all := make(map[string]policy.Policy)
	for _, algorithm := range policy.Algorithms() {
		for _, counting := range []policy.Counting{policy.CountingCounters, policy.CountingRows} {
			p := policyOf(algorithm, limit, window)
			if p.Counting = counting; len(p.Problems()) == 0 {
				all[fmt.Sprint(algorithm, ", ", counting)] = p
			}
		}
	}
	return all
}

// An engine that stops gives back what it holds in counters and buckets for reservations
// that nobody settled. Holds in logs end at their time. A record that comes later counts.
func TestStopEndsReservations(t *testing.T) {
	for name, policy := range manyCounts(10, 24*time.Hour) {
		for _, store := range []store.Store{embedded.New(nil), newFakeStore()} {
			bubble(t, fmt.Sprintf("%s, %T", name, store), func(t *testing.T) {
				e, other := newEngine(t, store, 0, policy), newEngine(t, store, 0, policy)
				stop := runningUntil(t, e)
				running(t, other)
				check := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute}
				settled, old := mustDo(t, e, check), mustDo(t, e, check)
				mustDo(t, other, limiter.Call{Op: count.OpRecord, Reservation: settled.Reservation})
				time.Sleep(10 * time.Second)
				young := mustDo(t, e, check)
				if young.Used != 3 {
					t.Fatalf("used %d by three reservations", young.Used)
				}
				began := time.Now()
				stop()
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("stopping took %v", took)
				}
				left := int64(1)
				if algorithm, _, _ := strings.Cut(name, ","); inLog(algorithm) {
					left = 3
				}
				if got := usedBy(t, other, somebody); got != left {
					t.Errorf("used %d after the stop, want %d", got, left)
				}
				for range 2 {
					mustDo(t, other, limiter.Call{Op: count.OpRecord, Reservation: young.Reservation})
				}
				time.Sleep(2 * time.Minute)
				if got := usedBy(t, other, somebody); got != 2 {
					t.Errorf("used %d by two that were settled", got)
				}
				mustDo(t, other, limiter.Call{Op: count.OpRecord, Reservation: old.Reservation})
				if got := usedBy(t, other, somebody); got != 3 {
					t.Errorf("used %d by three that were settled", got)
				}
			})
		}
	}
}

// A stop ends the whole of a reservation, its logs too: a record of it counts all of it anew.
func TestStopEndsReservationsOfSeveral(t *testing.T) {
	several := policyOf("sliding-log", 10, time.Hour)
	several.Limits = append(several.Limits, limitOf("fixed-window", 20))
	for name, policies := range map[string][]policy.Policy{
		"demands": twoPolicies(limitOf("sliding-log", 10), limitOf("fixed-window", 10)),
		"limits":  {several, {Name: "q", Limits: []policy.Limit{limitOf("token-bucket", 10)}}},
	} {
		for _, store := range []store.Store{embedded.New(nil), newFakeStore()} {
			bubble(t, fmt.Sprintf("%s, %T", name, store), func(t *testing.T) {
				e, other := newEngine(t, store, 0, policies...), newEngine(t, store, 0, policies...)
				running(t, other)
				stop := runningUntil(t, e)
				held := mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: both, Reserve: time.Minute})
				stop()
				want := func(n int64, when string) {
					t.Helper()
					for _, d := range both {
						got, err := other.Check(t.Context(), d)
						for _, l := range got.Limits() {
							if err != nil || l.Used > n+1 || l.Used < n || l.Used > n && l.Limit.Algorithm != "token-bucket" {
								t.Errorf("%s: %s of %s: used %d, want %d: %v", when, l.Limit.Name, d.Policy, l.Used, n, err)
							}
						}
					}
				}
				want(0, "after the stop")
				mustDo(t, other, limiter.Call{Op: count.OpRecord, Demands: both, Reservation: held.Reservation})
				want(1, "after the record")
			})
		}
	}
}

// A store that does not answer holds up a stop for a second and a half at most, and the units stay charged.
func TestStopWithoutAStore(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		store := newFakeStore()
		e := newEngine(t, store, 0, policyOf("token-bucket", 1e6, 24*time.Hour))
		stop := runningUntil(t, e)
		var all sync.WaitGroup
		for i := range 200 {
			d := limiter.Demand{Policy: "p", Identifier: keys.Identifier(fmt.Sprint(i))}
			all.Go(func() {
				mustDo(t, e, limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Second + time.Duration(i%2)*time.Minute})
			})
		}
		all.Wait()
		store.set(func() { store.readTakes, store.writeTakes = time.Hour, time.Hour })
		time.Sleep(time.Second + 10*time.Millisecond) // half of them are being ended
		began := time.Now()
		stop()
		if took := time.Since(began); took > timeout+time.Second {
			t.Errorf("stopping took %v", took)
		}
	})
}

// While the clock is wrong nothing is given back; at its end a reservation waits for it to
// be right again.
func TestReservationEndsOnceTheClockIsRight(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var skewed atomic.Bool
		e := limiter.New(newFakeStore(), &limiter.Options{
			ClockTolerance: tolerance, StoreTimeout: timeout, Now: time.Now, Skewed: skewed.Load,
		})
		if err := e.SetPolicies([]policy.Policy{policyOf("fixed-window", 10, 31*24*time.Hour)}); err != nil {
			t.Fatal(err)
		}
		running(t, e)
		check := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{somebody}, Reserve: time.Minute}
		mustDo(t, e, check)
		skewed.Store(true)
		time.Sleep(30*time.Minute + 500*time.Millisecond)
		skewed.Store(false)
		if got := usedBy(t, e, somebody); got != 1 {
			t.Errorf("used %d while the clock was wrong", got)
		}
		time.Sleep(3 * time.Second)
		if got := usedBy(t, e, somebody); got != 0 {
			t.Errorf("used %d once it was right", got)
		}
		mustDo(t, e, check)
		skewed.Store(true)
		time.Sleep(2*time.Hour + 500*time.Millisecond)
		skewed.Store(false)
		time.Sleep(time.Minute)
		if got := usedBy(t, e, somebody); got != 1 {
			t.Errorf("used %d when it was right after more than an hour, want the unit that stays charged", got)
		}
	})
}
