package peer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
)

// costs is what was asked of others.
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
			w := newSimWorld(t, 1)
			w.quick, w.fails = true, 0
			w.mu.Lock()
			for range members {
				w.start()
			}
			w.mu.Unlock()
			time.Sleep(15 * time.Second) // until all have joined, and know all keys
			defer func() {
				for _, in := range w.alive {
					in.stop()
				}
				for _, in := range w.alive {
					<-in.ended
				}
				time.Sleep(time.Minute)
			}()
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
