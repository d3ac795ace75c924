package cassandra_test

import (
	"context"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

func TestMain(m *testing.M) { cassandratest.Main(m) }

// newConfig returns the settings for a keyspace of the test's own.
func newConfig(t testing.TB) cassandra.Config {
	t.Helper()
	hosts := cassandratest.Hosts(t)
	return cassandra.Config{Hosts: hosts, Keyspace: cassandratest.Keyspace(t), Timeout: 10 * time.Second}
}

// commonConfig returns the settings for the keyspace that tests have in common which use keys, or a namespace, that nobody
// else does, and look at no others.
func commonConfig(t testing.TB) cassandra.Config {
	t.Helper()
	hosts := cassandratest.Hosts(t)
	return cassandra.Config{Hosts: hosts, Keyspace: cassandratest.CommonKeyspace(t), Timeout: 10 * time.Second}
}

// newStore returns a store on the tables of that keyspace, which it makes if they are not there.
func newStore(t testing.TB, config cassandra.Config) *cassandra.Store {
	t.Helper()
	if err := cassandra.Migrate(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	store, err := cassandra.Open(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

func TestConformance(t *testing.T) {
	store := newStore(t, newConfig(t))
	storetest.Run(t, store)
	storetest.RunTallied(t, store)
}

func TestTTLOfEventsIsTheLongestWindowAndTheMargins(t *testing.T) {
	config := newConfig(t)
	store := newStore(t, config)
	policy := policy.Policy{Name: "sms", Limits: []policy.Limit{
		{Algorithm: "sliding-log", Limit: 1, Window: 30 * time.Second},
		{Algorithm: "sliding-log", Limit: 10, Window: time.Hour},
	}}
	e := storetest.NewEngine(t, store, limiter.Options{ClockTolerance: 100 * time.Millisecond}, policy)
	if _, err := e.Take(context.Background(), limiter.Demand{Policy: "sms", Identifier: "+4915112345678"}); err != nil {
		t.Fatal(err)
	}
	var ttl int
	session := cassandratest.Session(t, config.Hosts...)
	if err := session.Query("SELECT TTL(cost) FROM " + config.Keyspace + ".events_hour").Scan(&ttl); err != nil {
		t.Fatal(err)
	}
	// ceil(1 h + 2 × 100 ms + 10 s store timeout) + 1 s for whole seconds + 1 s for the nodes' clocks.
	want := 3600 + 11 + 1 + 1
	if ttl < want-2 || ttl > want {
		t.Errorf("TTL %d s, want %d s or up to 2 s less, for the time since", ttl, want)
	}
}
