package cassandra_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// timedStore knows how long its slowest write and read took, one after the other.
type timedStore struct {
	limiter.Store

	slowestWrite, slowestRead atomic.Int64
}

func (s *timedStore) Write(ctx context.Context, w *limiter.Write) error {
	defer slower(&s.slowestWrite, time.Now())
	return s.Store.Write(ctx, w)
}

func (s *timedStore) Read(ctx context.Context, q *limiter.Query) (limiter.State, error) {
	defer slower(&s.slowestRead, time.Now())
	return s.Store.Read(ctx, q)
}

func slower(slowest *atomic.Int64, began time.Time) {
	took := int64(time.Since(began))
	for was := slowest.Load(); took > was && !slowest.CompareAndSwap(was, took); was = slowest.Load() {
	}
}

// sync returns the longest that a sync of a key can have taken.
func (s *timedStore) sync() time.Duration {
	return time.Duration(s.slowestWrite.Load() + s.slowestRead.Load())
}

// TestLocalOvershoot has three instances, which share a limit of 1000 a minute that each
// decides about in memory, asked for one key at a steady pace, and tells by how much they
// go past it.
func TestLocalOvershoot(t *testing.T) {
	store := &timedStore{Store: newStore(t, newConfig(t))}
	for _, algorithm := range []string{"sliding-log", "fixed-window", "token-bucket"} {
		for _, each := range []int{100, 1000} { // a second
			t.Run(fmt.Sprintf("%s, %d a second at each", algorithm, each), func(t *testing.T) {
				t.Parallel()
				overshoot(t, store, algorithm, each)
			})
		}
	}
}

func overshoot(t *testing.T, store *timedStore, algorithm string, each int) {
	const instances, limit = 3, 1000
	lasts := limit*time.Second/time.Duration(instances*each) + 1500*time.Millisecond
	intoTheMinute := time.Duration(time.Now().UnixNano()) % time.Minute
	policy := limiter.Policy{Name: "p", Guarantee: limiter.GuaranteeLocal, Limits: []limiter.Limit{
		{Name: fmt.Sprint(each), Algorithm: algorithm, Limit: limit, Window: time.Minute},
	}}
	admitted := make([][]time.Time, instances)
	var all sync.WaitGroup
	began := time.Now()
	for i := range admitted {
		e := localInstance(t, store, intoTheMinute, policy)
		all.Go(func() {
			admitted[i] = ask(t, e, limiter.Identifier(algorithm+fmt.Sprint(each)), time.Second/time.Duration(each), lasts)
		})
	}
	all.Wait()
	may := limit
	if algorithm == "token-bucket" {
		may += int(limit*time.Since(began)/time.Minute) + 1
	}
	total := 0
	for _, times := range admitted {
		total += len(times)
	}
	stretch := limiter.DefaultSyncInterval + store.sync()
	t.Logf("%d were admitted where %d may be: %d beyond, of at most %d; a sync took up to %v",
		total, may, total-may, beyond(admitted, stretch), store.sync())
	if bound := may + beyond(admitted, 2*stretch); total < limit || total > bound { // a busy machine is late with its syncs
		t.Errorf("%d were admitted, at most %d may be", total, bound)
	}
}

// beyond returns how many more than the limit may be admitted by instances that admitted
// as these did, if a sync follows the last within a stretch.
func beyond(admitted [][]time.Time, stretch time.Duration) (n int) {
	least := math.MaxInt
	for _, times := range admitted {
		more := 1 + most(times, stretch)
		n, least = n+more, min(least, more)
	}
	return n - least
}

// What was counted for many keys in memory travels together when it is written.
func TestLocalKeysTravelTogether(t *testing.T) {
	const keys = 2000
	for _, algorithm := range []string{"sliding-log", "sliding-tail"} {
		t.Run(algorithm, func(t *testing.T) {
			store := newStore(t, newConfig(t))
			var trips, travelled atomic.Int64
			store.WatchTrips(func(n int) { trips.Add(1); travelled.Add(int64(n)) })
			e := localInstance(t, store, 0, limiter.Policy{Name: "p", Guarantee: limiter.GuaranteeLocal, Limits: []limiter.Limit{
				{Algorithm: algorithm, Limit: 10, Window: time.Hour},
			}})
			for i := range keys {
				if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: limiter.Identifier(fmt.Sprint(i))}); err != nil {
					t.Fatal(err)
				}
			}
			began := time.Now()
			eventually(t, "all are written", func() bool { return e.Behind().Written == keys })
			t.Logf("%d keys in %v, of which %d in %d trips", keys, time.Since(began), travelled.Load(), trips.Load())
			if travelled.Load() < 2*trips.Load() {
				t.Errorf("%d keys in %d trips: want at least two in each", travelled.Load(), trips.Load())
			}
		})
	}
}

// localInstance returns an instance of its own whose minute began when the test did.
func localInstance(t *testing.T, store limiter.Store, behind time.Duration, policy limiter.Policy) *limiter.Engine {
	t.Helper()
	now := func() time.Time { return time.Now().Add(-behind) }
	e := limiter.New(store, &limiter.Options{Now: now, Local: embedded.New(&embedded.Options{Now: now}), StoreTimeout: 5 * time.Second})
	if err := e.SetPolicies([]limiter.Policy{policy}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = e.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return e
}

// ask takes at a steady pace for a while, and returns when it was admitted.
func ask(t *testing.T, e *limiter.Engine, id limiter.Identifier, pace, lasts time.Duration) (admitted []time.Time) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		now := <-tick.C
		d, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id})
		if err != nil {
			t.Error(err)
			return admitted
		}
		if d.Allowed {
			admitted = append(admitted, now)
		}
	}
	return admitted
}

// most returns how many of times lie within any stretch of time at most.
func most(times []time.Time, stretch time.Duration) (n int) {
	from := 0
	for i, at := range times {
		for at.Sub(times[from]) > stretch {
			from++
		}
		n = max(n, i+1-from)
	}
	return n
}
