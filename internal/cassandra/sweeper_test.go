package cassandra_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// TestSweeperLeavesNoCounterAnHourAfterItsWindow counts in many keys, with and
// without a reset, and lets the store's clock go on.
func TestSweeperLeavesNoCounterAnHourAfterItsWindow(t *testing.T) {
	config := newConfig(t)
	now := storetest.Clock(t, "12:00:00")
	config.Now = func() time.Time { return now }
	store := newStore(t, config)
	e := storetest.NewEngine(t, store, limiter.Options{}, limiter.Policy{Name: "p", Limits: []limiter.Limit{
		{Algorithm: "fixed-window", Limit: 10, Window: time.Minute},
		{Algorithm: "sliding-tail", Limit: 10, Window: 10 * time.Minute},
	}})
	const keys = 50
	for i := range keys {
		id := limiter.Identifier(fmt.Sprintf("+49151%08d", i))
		if _, err := e.Take(t.Context(), limiter.Demand{Policy: "p", Identifier: id}); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Reset(t.Context(), "p", "+4915100000000"); err != nil {
		t.Fatal(err)
	}
	session := cassandratest.Session(t, config.Hosts...)
	rows := func() (n int) {
		t.Helper()
		if err := session.Query("SELECT COUNT(*) FROM " + config.Keyspace + ".counters").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, step := range []struct {
		at   string
		rows int
	}{
		{"13:00:59", 2*keys + 1}, // no window has been over for an hour
		{"13:01:01", keys + 1},   // the minutes have
		{"13:20:01", 1},          // and the tails
		{"13:30:00", 0},          // and what remembers the reset, which lives twice the longest window
	} {
		now = storetest.Clock(t, step.at)
		if err := store.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := rows(); got != step.rows {
			t.Errorf("at %s %d rows are left, want %d", step.at, got, step.rows)
		}
	}
	if got := store.Sweeps().Deleted; got != 2*keys+1 {
		t.Errorf("counters of %d keys deleted, want %d", got, 2*keys+1)
	}
}
