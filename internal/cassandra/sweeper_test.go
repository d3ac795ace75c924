package cassandra_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// rowsOf returns how many rows a table has.
func rowsOf(t *testing.T, session *gocql.Session, config *cassandra.Config, table string) (n int) {
	t.Helper()
	if err := session.Query("SELECT COUNT(*) FROM " + config.Keyspace + "." + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestSweeperLeavesNoCounterAnHourAfterItsWindow counts in many keys, with and
// without a reset, and lets the cluster's time go on. It starts at the edge of a window
// that is to come, so that nothing was written after its window.
func TestSweeperLeavesNoCounterAnHourAfterItsWindow(t *testing.T) {
	config := newConfig(t)
	store := newStore(t, config)
	start := time.Now().Truncate(10 * time.Minute).Add(10 * time.Minute)
	opts := limiter.Options{Now: func() time.Time { return start }}
	e := storetest.NewEngine(t, store, opts, policy.Policy{Name: "p", Limits: []policy.Limit{
		{Algorithm: "fixed-window", Limit: 10, Window: time.Minute},
		{Algorithm: "sliding-tail", Limit: 10, Window: 10 * time.Minute},
	}})
	const all = 50
	for i := range all {
		id := keys.Identifier(fmt.Sprintf("+49151%08d", i))
		if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Reset(t.Context(), "p", "+4915100000000"); err != nil {
		t.Fatal(err)
	}
	session := cassandratest.Session(t, config.Hosts...)
	for _, step := range []struct {
		after time.Duration
		rows  int
	}{
		{60*time.Minute + 50*time.Second, 2*all + 1}, // no window has been over for an hour
		{61*time.Minute + time.Second, all + 1},      // the minutes have
		{80*time.Minute + time.Second, 1},            // and the tails
		{90 * time.Minute, 0},                        // and what remembers the reset, which lives twice the longest window
	} {
		store.SetClusterTime(start.Add(step.after))
		if err := store.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := rowsOf(t, session, &config, "counters"); got != step.rows {
			t.Errorf("after %v %d rows are left, want %d", step.after, got, step.rows)
		}
	}
	if got := store.Sweeps().Deleted; got != 2*all+1 {
		t.Errorf("counters of %d keys deleted, want %d", got, 2*all+1)
	}
}

// TestSweeperWhoseClockIsAhead has instances sweep that take today for tomorrow: their
// clock must not make them delete what counts for everybody else.
func TestSweeperWhoseClockIsAhead(t *testing.T) {
	config := newConfig(t)
	now := time.Now() // which stands still: no window ends meanwhile
	e := storetest.NewEngine(t, newStore(t, config), limiter.Options{Now: func() time.Time { return now }}, policy.Policy{
		Name: "p", Limits: []policy.Limit{{Algorithm: "sliding-tail", Limit: 10, Window: time.Hour}},
	})
	d := limiter.Demand{Policy: "p", Identifier: storetest.Somebody, Cost: 10}
	if a, err := e.Take(t.Context(), d); err != nil || !a.Allowed {
		t.Fatal(a.Allowed, err)
	}
	d.Cost = 1
	config.Now = func() time.Time { return time.Now().Add(26 * time.Hour) }
	for _, c := range []struct {
		name      string
		tolerance time.Duration
		sweeps    bool
	}{
		{"beyond the tolerance", time.Second, false},
		{"whatever the tolerance", 0, true}, // by the cluster's time
	} {
		t.Run(c.name, func(t *testing.T) {
			config := config
			config.ClockTolerance = c.tolerance
			ahead, err := cassandra.Open(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer ahead.Close()
			if err := ahead.Sweep(t.Context()); (err == nil) != c.sweeps {
				t.Errorf("swept: %v, want %v", err == nil, c.sweeps)
			}
			if a, err := e.Check(t.Context(), d); err != nil || a.Used != 10 {
				t.Errorf("used %d after ten were taken (%v)", a.Used, err)
			}
			if c.sweeps {
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // a sweep's pause, and a slice
			defer cancel()
			if err := ahead.Run(ctx); err != nil {
				t.Error(err)
			}
			if ahead.Sweeps().Progress > 0 {
				t.Error("a slice was swept")
			}
		})
	}
}

// TestSweepingHidesNothingThatIsWrittenLater has a counter written long after it
// expired, which nobody does: deleting it takes effect once its writing is an hour ago.
func TestSweepingHidesNothingThatIsWrittenLater(t *testing.T) {
	config := newConfig(t)
	store := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	err := session.Query("UPDATE "+config.Keyspace+".counters SET units = units + 1 WHERE key = 0x01 AND expires_at = ? "+
		"AND limit_id = 'l' AND window_start = 0 AND epoch = 0", time.Now().Add(-2*time.Hour)).Exec()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		after time.Duration
		rows  int
	}{{0, 1}, {61 * time.Minute, 0}} {
		store.SetClusterTime(time.Now().Add(step.after))
		if err := store.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := rowsOf(t, session, &config, "counters"); got != step.rows {
			t.Errorf("%v after it was written %d rows are left, want %d", step.after, got, step.rows)
		}
	}
}
