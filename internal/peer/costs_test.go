package peer

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// costs counts the requests to the store and to peers.
type costs struct{ hops, writes, reads, rows atomic.Int64 }

// of returns what a decision costs, and forgets it.
func (c *costs) of(decisions int) string {
	each := func(n *atomic.Int64) float64 { return float64(n.Swap(0)) / float64(decisions) }
	return fmt.Sprintf("%.2f writes, %.2f reads of keys, %.2f of own rows", each(&c.writes), each(&c.reads), each(&c.rows))
}

// TestCostDoesNotGrowWithMembers holds that a decision among twenty members costs what it costs a single one, but
// for the hop to the owner of the key: a write and a read of the owner's row for what is admitted, and nothing
// for what is denied.
func TestCostDoesNotGrowWithMembers(t *testing.T) {
	for _, members := range []int{1, 2, 3, 5, 10, 20} {
		synctest.Test(t, func(t *testing.T) {
			w := quickWorld(t, members)
			const keys, limit = 100, 4
			w.costs.of(1)
			w.costs.hops.Store(0)
			for i := range keys * limit {
				w.takeOf(i+i/keys, i%keys, true)
			}
			if got, want := w.costs.of(keys*limit), "1.00 writes, 0.00 reads of keys, 1.00 of own rows"; got != want {
				t.Errorf("%d members: an admission costs %s, want %s", members, got, want)
			}
			hops := float64(w.costs.hops.Swap(0)) / (keys * limit)
			if least, most := 0.8*float64(members-1)/float64(members), 1.0; hops < least || hops > most || members == 1 && hops > 0 {
				t.Errorf("%d members: %.2f hops, want %.2f to %.2f", members, hops, least, most)
			}
			for i := range keys * limit {
				w.takeOf(i+i/keys, i%keys, false)
			}
			if got, want := w.costs.of(keys*limit), "0.00 writes, 0.00 reads of keys, 0.00 of own rows"; got != want {
				t.Errorf("%d members: a denial costs %s, want %s", members, got, want)
			}
			t.Logf("%d members: %.2f hops for an admission, %.2f for a denial", members, hops, float64(w.costs.hops.Load())/(keys*limit))
		})
	}
}

// takeOf has one of the instances decide a take.
func (w *simWorld) takeOf(instance, key int, want bool) {
	w.t.Helper()
	in := w.alive[instance%len(w.alive)]
	d, err := in.engine.Take(w.t.Context(), limiter.Demand{Policy: "log", Identifier: keys.Identifier(fmt.Sprint(key))})
	if err != nil || d.Allowed != want {
		w.t.Fatalf("%d members, key %d: allowed %t, error %v; want %t", len(w.alive), key, d.Allowed, err, want)
	}
}

// TestCostOfWhatIsGivenBack holds what a reset, and a refund by its claim, cost beside their news, together with the take
// that follows.
func TestCostOfWhatIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := quickWorld(t, 3)
		const each = 100
		for _, p := range simPolicies() {
			for _, how := range []string{"reset", "refund"} {
				if how == "refund" && p.Name == simSlots {
					continue
				}
				receipts, demands := make([]string, each), make([]limiter.Demand, each)
				for i := range each {
					demands[i] = limiter.Demand{Policy: p.Name, Identifier: keysOf(how, i)}
					a, err := w.alive[i%3].engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: demands[i : i+1]})
					if err != nil || !a.Allowed {
						t.Fatalf("%+v, %v", a, err)
					}
					receipts[i] = a.Receipt
				}
				time.Sleep(5 * time.Second)
				w.costs.of(1)
				for i := range each {
					in, err := w.alive[(i/3)%3], error(nil)
					if how == "reset" {
						err = in.engine.Reset(t.Context(), p.Name, demands[i].Identifier)
					} else {
						err = in.engine.Refund(t.Context(), receipts[i])
					}
					if err != nil {
						t.Fatalf("%s of %s: %v", how, p.Name, err)
					}
				}
				time.Sleep(5 * time.Second)
				cost := w.costs.of(each)
				want := "1.00 writes, 0.00 reads of keys, "
				if p.WriteFrom > 0 { // its units are written before
					want = "2.00 writes, 0.00 reads of keys, "
				}
				if how == "reset" && !strings.HasPrefix(cost, want) {
					t.Errorf("a reset of %s costs %s, want %s", p.Name, cost, want)
				}
				for i := range each {
					if d, err := w.alive[i%3].engine.Take(t.Context(), demands[i]); err != nil || !d.Allowed {
						t.Fatalf("%+v, %v", d, err)
					}
				}
				next := w.costs.of(each)
				t.Logf("%s of %s: %s; the next take %s", how, p.Name, cost, next)
				if how == "refund" {
					holdNoReads(t, "a refund of "+p.Name, cost)
				}
				if sums := strings.Contains(p.Name, "rows") || p.Name == "counters" || p.Name == "both"; how == "refund" && !sums {
					holdNoReads(t, "the take after a refund of "+p.Name, next)
				}
			}
		}
	})
}

func holdNoReads(t *testing.T, what, cost string) {
	t.Helper()
	if !strings.Contains(cost, ", 0.00 reads of keys,") {
		t.Errorf("%s costs %s, want no reads of keys", what, cost)
	}
}

func keysOf(how string, i int) keys.Identifier { return keys.Identifier(fmt.Sprint(how, i)) }

// quickWorld returns a world of members over a store that takes no time and never fails. They end with the test.
func quickWorld(t *testing.T, members int) *simWorld {
	w := newSimWorld(t, 1)
	w.quick, w.fails = true, 0
	w.mu.Lock()
	for range members {
		w.start()
	}
	w.mu.Unlock()
	time.Sleep(15 * time.Second) // until all have joined, and know all keys
	t.Cleanup(func() {
		for _, in := range w.alive {
			in.stop()
		}
		for _, in := range w.alive {
			<-in.ended
		}
		time.Sleep(time.Minute)
	})
	return w
}

// TestCostOfReservations holds that a reservation costs what a take does: a write, whichever instance is asked.
func TestCostOfReservations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := quickWorld(t, 3)
		const each = 100
		for _, p := range simPolicies() {
			if p.InCells() {
				continue
			}
			for i := range each + 3 { // the first call of each instance reads the secret
				if i == 3 {
					w.costs.of(1)
				}
				d := limiter.Demand{Policy: p.Name, Identifier: keysOf("reserve", i)}
				call := limiter.Call{Op: count.OpCheck, Demands: []limiter.Demand{d}, Reserve: time.Minute}
				if a, err := w.alive[i%3].engine.Do(t.Context(), &call); err != nil || a.Reservation == "" {
					t.Fatalf("%+v, %v", a, err)
				}
			}
			if cost, want := w.costs.of(each), "1.00 writes, 0.00 reads of keys, "; !strings.HasPrefix(cost, want) {
				t.Errorf("a reservation of %s costs %s, want %s", p.Name, cost, want)
			}
		}
	})
}
