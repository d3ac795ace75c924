package limiter_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/race"
)

var (
	simSeed      = flag.Uint64("sim.seed", 0, "the one schedule that the simulation runs; 0: many")
	simFirst     = flag.Uint64("sim.first", 1, "the first of many schedules; 0: any")
	simSchedules = flag.Int("sim.schedules", 1500, "how many schedules the simulation runs; a tenth of them with -short or -race")
)

// TestSimulation has several instances, with clocks that differ, decide over one
// cluster that is slow, loses, repeats and reorders what it is sent, while they stand
// still and die, and holds what clients saw against what docs/guarantees.md promises. A
// seed gives the same schedule again.
func TestSimulation(t *testing.T) {
	if *simSeed != 0 {
		simulate(t, *simSeed)
		return
	}
	n := *simSchedules
	if testing.Short() || race.Enabled {
		n /= 10
	}
	first, began := firstSeed(), time.Now()
	var mu sync.Mutex
	var all findings
	failed := n // the first that does: none after it is run
	t.Run("schedules", func(t *testing.T) {
		shards := runtime.GOMAXPROCS(0)
		for shard := range shards {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				for i := shard; i < n; i += shards {
					_, f := simulate(t, first+uint64(i))
					mu.Lock()
					all.merge(f)
					if len(f.wrong) > 0 {
						failed = min(failed, i)
					}
					over := i > failed
					mu.Unlock()
					if over {
						return
					}
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("%d schedules in %v, %.0f a second: %v", all.schedules, took.Round(time.Millisecond), float64(all.schedules)/took.Seconds(), &all)
	if all.denied > 10_000 && all.unlucky > all.denied/10 {
		t.Errorf("%d of %d denials were wrong: a tenth is too many", all.unlucky, all.denied)
	}
}

// firstSeed is the same in every run unless another is asked for: a change that breaks a
// promise fails for its author, not for the next person.
func firstSeed() uint64 {
	if *simFirst == 0 {
		return rand.Uint64()
	}
	return *simFirst
}

// TestSimulationsCanBeReplayed runs schedules twice: clients see the same.
func TestSimulationsCanBeReplayed(t *testing.T) {
	first := firstSeed()
	for seed := first; seed < first+20; seed++ {
		once, _ := simulate(t, seed)
		if again, _ := simulate(t, seed); again != once {
			t.Errorf("seed %d gave two histories:\n%s\nand\n%s", seed, once, again)
		}
	}
}

// simulate runs the schedule of seed, and fails t for what was promised and did not
// hold. It returns what clients saw.
func simulate(t *testing.T, seed uint64) (history string, f *findings) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, seed)
		w.run()
		f = w.check()
		w.end()
		history = w.String()
		if *simSeed != 0 { // before it fails, which ends t
			t.Log("\n" + history)
		}
		if len(f.wrong) > 0 {
			t.Errorf("seed %d, %s:\n\t%s\nreplay it with: go test ./internal/limiter -run 'TestSimulation$' -v -sim.seed=%d",
				seed, w.scenario.name, strings.Join(f.wrong, "\n\t"), seed)
		}
	})
	return history, f
}

// String tells what the schedule is about, and what clients saw.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %+v\n", w.scenario.name, w.scenario.weather)
	for _, r := range w.history {
		fmt.Fprintln(&b, r)
	}
	return b.String()
}

// merge adds to f what another schedule has shown.
func (f *findings) merge(other *findings) {
	f.schedules++
	f.calls += other.calls
	f.admitted += other.admitted
	f.denied += other.denied
	f.unlucky += other.unlucky
	f.unknown += other.unknown
}

// String tells the numbers.
func (f *findings) String() string {
	return fmt.Sprintf("%d calls, %d admitted, %d denied, of which %d though there was room, %d unknown",
		f.calls, f.admitted, f.denied, f.unlucky, f.unknown)
}
