package cassandra_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/count"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// parallel calls do n times, several at a time.
func parallel(t *testing.T, n int, do func(i int) error) {
	t.Helper()
	const atOnce = 16
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i := range n {
		g.Go(func() error { return do(i) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until is returns true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	const patience, pause = time.Minute, 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: not within %v", what, patience)
		case <-tick.C:
		}
	}
}

// walkedOver returns the most tombstones that a read of the table has walked over.
func walkedOver(t *testing.T, session *gocql.Session, config *cassandra.Config, table string) (most float64) {
	t.Helper()
	err := session.Query(`SELECT "max" FROM system_views.tombstones_per_read WHERE keyspace_name = ? AND table_name = ?`,
		config.Keyspace, table).Scan(&most)
	if err != nil {
		t.Fatal(err)
	}
	return most
}

// TestOldRowsGoAndNoReadMeetsThem has a key that is used for round after round, its rows
// expired or swept in between: what a round leaves behind is nothing, but for tombstones
// that no read of the key comes by.
func TestOldRowsGoAndNoReadMeetsThem(t *testing.T) {
	config := newConfig(t)
	config.SweepAge = time.Second
	s := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	const rounds, records, few = 2, 400, 10
	e := storetest.NewEngine(t, s, limiter.Options{Now: time.Now, StoreTimeout: 5 * time.Second}, policy.Policy{
		Name: "p", Limits: []policy.Limit{
			{Algorithm: "sliding-log", Limit: 10, Window: time.Second},
			{Algorithm: "fixed-window", Limit: 10, Window: time.Second},
		},
	})
	demand := limiter.Demand{Policy: "p", Identifier: storetest.Somebody}
	for round := range rounds {
		parallel(t, records, func(int) error {
			_, err := e.Record(t.Context(), demand)
			return err
		})
		waitForExpiry(t, s, store.InstantOf(time.Now()))
		s.SetClusterTime(time.Now())
		if err := s.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a, err := e.Take(t.Context(), demand); err != nil || !a.Allowed {
			t.Fatalf("round %d: %+v, %v", round, a, err)
		}
		for _, table := range []string{"events_hour", "counters"} {
			if n := walkedOver(t, session, &config, table); n > few {
				t.Errorf("round %d: a read of %s walked over %v tombstones", round, table, n)
			}
		}
	}
	for _, table := range []string{"events_hour", "counters"} {
		if n := rowsOf(t, session, &config, table); n > 1 {
			t.Errorf("%d rows are left in %s, want that of the last take", n, table)
		}
	}
	if n := walkedOver(t, session, &config, "events_hour"); n < rounds*records {
		t.Errorf("reading all of the events walked over %v tombstones: this test would not notice", n)
	}
}

// waitForExpiry waits until news that lives as long as events with a window of a second
// is gone: so is every such event that was written before.
func waitForExpiry(t *testing.T, s *cassandra.Store, now store.Instant) {
	t.Helper()
	const eventsLive = 9 * time.Second // a second, the store timeout, the margins of times to live, and one more
	var key store.Key
	canary := store.Change{ID: store.NewEventIDs().Next(now), Kind: store.ChangeRefund, Key: key, TTL: eventsLive}
	if err := s.Publish(t.Context(), &canary); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the canary expires", func() bool {
		changes, err := s.Changes(t.Context(), &store.ChangeQuery{Since: now})
		if err != nil {
			t.Fatal(err)
		}
		return len(changes) == 0
	})
}

// strictTombstones is how many tombstones a read may meet on a node that refuses reads
// sooner than others, which do at a hundred thousand.
const strictTombstones = 500

// TestNothingIsRefusedForWhatIsGone runs on a node that refuses reads which walk over
// many tombstones: nothing that instances do may depend on there being few.
func TestNothingIsRefusedForWhatIsGone(t *testing.T) {
	t.Parallel()
	cluster := cassandratest.StartCluster(t, &cassandratest.ClusterOptions{Config: map[string]string{
		"tombstone_warn_threshold": "100", "tombstone_failure_threshold": fmt.Sprint(strictTombstones),
	}})
	for _, c := range []struct {
		name string
		test func(*testing.T, cassandra.Config)
	}{
		{"news that nobody needs any more", testOldNews},
		{"counters that were swept", testSweepsBesideTombstones},
		{"takes that were denied", testDeniedTakes},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.test(t, cassandra.Config{Hosts: cluster.Hosts(), Keyspace: cassandratest.KeyspaceName(t), Timeout: 10 * time.Second})
		})
	}
}

// testOldNews has an instance that starts look for the one block that holds among
// thousands of resets that are forgotten.
func testOldNews(t *testing.T, config cassandra.Config) {
	s := newStore(t, config)
	const resets = 4 * strictTombstones
	ids, began := store.NewEventIDs().Next, store.InstantOf(time.Now().Add(-2*time.Hour))
	var key store.Key
	at := func(i int) store.EventID { return ids(began.Add(time.Duration(i) * time.Second)) }
	block := store.Change{ID: at(resets / 3), Kind: store.ChangeBlock, Key: key, TTL: time.Hour}
	if err := s.Publish(t.Context(), &block); err != nil {
		t.Fatal(err)
	}
	parallel(t, resets, func(i int) error {
		return s.Publish(t.Context(), &store.Change{ID: at(i), Kind: store.ChangeReset, Key: key, TTL: time.Second})
	})
	eventually(t, "resets expire", func() bool {
		changes, err := s.Changes(t.Context(), &store.ChangeQuery{Since: began.Add(-24 * time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return len(changes) == 1 && changes[0].ID == block.ID
	})
}

// testSweepsBesideTombstones sweeps many keys twice, all of them in one part of the ring.
func testSweepsBesideTombstones(t *testing.T, config cassandra.Config) {
	store := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	insert := "UPDATE " + config.Keyspace + ".counters SET units = units + 1 WHERE key = ? AND expires_at = ? " +
		"AND limit_id = 'l' AND window_start = 0 AND epoch = 0"
	const keys = 2 * strictTombstones
	for round := range 2 {
		over := time.Now().Add(time.Duration(round) * time.Hour)
		parallel(t, keys, func(int) error {
			key := fmt.Appendf(nil, "%032x", rand.Uint64())
			return session.Query(insert, key, over).Exec()
		})
		store.SetClusterTime(over.Add(2 * time.Hour))
		if err := store.SweepAsOneSlice(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := store.Sweeps().Deleted; got != int64(round+1)*keys {
			t.Errorf("round %d: %d keys swept, want %d", round, got, (round+1)*keys)
		}
	}
}

// testDeniedTakes goes on and on with a key that is over its limit, alone and together
// with one that is not, on several instances: most is denied before anything is written
// that had to be taken back.
func testDeniedTakes(t *testing.T, config cassandra.Config) {
	const limit = 10
	var engines []storetest.Engine
	for range 3 {
		opts := limiter.Options{Keyer: keys.Keyer{Namespace: t.Name()}, Now: time.Now}
		engines = append(engines, storetest.NewEngine(t, newStore(t, config), opts,
			policy.Policy{Name: "one", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: limit, Window: time.Hour}}},
			policy.Policy{Name: "all", Limits: []policy.Limit{{Algorithm: "sliding-log", Limit: 1000, Window: time.Hour}}},
		))
	}
	one := limiter.Demand{Policy: "one", Identifier: storetest.Somebody}
	// Both kinds are added up: while a unit of a denied take waits to be removed, fewer are admitted, and more later.
	var admitted atomic.Int64
	parallel(t, 3*strictTombstones, func(i int) error {
		answer, err := engines[i%len(engines)].Take(t.Context(), one)
		if err == nil && answer.Allowed {
			admitted.Add(1)
		}
		return err
	})
	parallel(t, 3*strictTombstones, func(i int) error {
		demands := []limiter.Demand{one, {Policy: "all", Identifier: "everybody"}}
		answer, err := engines[i%len(engines)].Engine.Do(t.Context(), &limiter.Call{Op: count.OpTake, Demands: demands})
		if err == nil && answer.Allowed {
			admitted.Add(1)
		}
		return err
	})
	if n := admitted.Load(); n == 0 || n > limit {
		t.Errorf("%d takes were admitted, want %d at most, and some", n, limit)
	}
	session := cassandratest.Session(t, config.Hosts...)
	const few = 100
	if n := walkedOver(t, session, &config, "events_hour"); n > few {
		t.Errorf("a read walked over %v tombstones of what was denied", n)
	}
}
