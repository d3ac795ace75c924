package inprocess_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/client"
	"github.com/ratelimitd/ratelimitd/inprocess"
	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
)

// Limits over a Cassandra that can't be reached are there at once, decide as policies say, and
// count together with others once it can.
func TestOpenBeforeCassandra(t *testing.T) {
	const text = `policies:
  - name: denies
    limits: [{algorithm: sliding-log, limit: 1, window: 1h}]
  - name: locals
    on_store_error: local
    limits: [{algorithm: sliding-log, limit: 1, window: 1h}]
`
	door, keyspace := cassandratest.NewDoor(t), cassandratest.Keyspace(t)
	hosts := cassandratest.Hosts(t)
	if err := cassandra.Migrate(t.Context(), cassandra.Config{Hosts: hosts, Keyspace: keyspace}); err != nil {
		t.Fatal(err)
	}
	const patience = 20 * time.Second // of a busy machine
	openOn := func(keyspace string, hosts ...string) (*inprocess.Limits, *strings.Builder) {
		log := new(strings.Builder)
		limits, err := inprocess.Open(t.Context(), text, &inprocess.Options{
			Cassandra: &inprocess.Cassandra{Hosts: hosts, Keyspace: keyspace}, StoreTimeout: patience / 10, ClockTolerance: patience,
			Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return limits, log
	}
	limits, log := openOn(keyspace, door.Addr())
	if err := limits.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Errorf("ready: %v, want why it is not", err)
	}
	if d, err := limits.Take(t.Context(), demand("denies", "a", 1)); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("%+v, %v", d, err)
	}
	for i := range 2 {
		if d, err := limits.Take(t.Context(), demand("locals", "a", 1)); err != nil || !d.Degraded || d.Allowed != (i == 0) {
			t.Errorf("take %d: %+v, %v", i, d, err)
		}
	}
	wrong, _ := openOn("t_that_is_not_there", door.Addr())
	door.Open()
	waitFor(t, patience, func() bool { return limits.Ready(t.Context()) == nil })
	waitFor(t, patience, func() bool { // and what is remembered of its failures is over
		d, err := limits.Check(t.Context(), demand("denies", "a", 1))
		return err == nil && !d.Degraded
	})
	other, _ := openOn(keyspace, hosts...)
	for i, l := range []*inprocess.Limits{limits, other} {
		if d, err := l.Take(t.Context(), demand("denies", "a", 1)); err != nil || d.Degraded || d.Allowed != (i == 0) {
			t.Errorf("instance %d: %+v, %v", i, d, err)
		}
	}
	waitFor(t, patience, func() bool {
		return strings.Contains(wrong.Ready(t.Context()).Error(), "has `ratelimitd migrate` been run?")
	})
	if err := wrong.Close(); err == nil || !strings.Contains(err.Error(), "has `ratelimitd migrate` been run?") {
		t.Errorf("closing limits over a keyspace that is not there: %v", err)
	}
	for _, l := range []*inprocess.Limits{limits, other} {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "waiting for Cassandra"); n != 1 {
		t.Errorf("it is logged %d times what is waited for:\n%s", n, log)
	}
}

// waitFor returns when done says so, and fails the test if that takes too long.
func waitFor(t *testing.T, patience time.Duration, done func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); !done(); <-tick.C {
		if time.Since(start) > patience {
			t.Fatalf("not within %v", patience)
		}
	}
}

// Limits with another hash key than others have are not opened.
func TestAnotherHashKey(t *testing.T) {
	keyspace, hosts := cassandratest.Keyspace(t), cassandratest.Hosts(t)
	if err := cassandra.Migrate(t.Context(), cassandra.Config{Hosts: hosts, Keyspace: keyspace}); err != nil {
		t.Fatal(err)
	}
	open := func(key string) (*inprocess.Limits, error) {
		return inprocess.Open(t.Context(), policies, &inprocess.Options{
			Cassandra:    &inprocess.Cassandra{Hosts: hosts, Keyspace: keyspace},
			StoreTimeout: 5 * time.Second, ClockTolerance: 5 * time.Second,
			HashKeys: []inprocess.HashKey{{ID: key, Secret: []byte("the secret that is called " + key)}},
		})
	}
	limits, err := open("one")
	if err != nil {
		t.Fatal(err)
	}
	other, err := open("two")
	if err == nil {
		t.Error("limits with another hash key are opened", other.Close())
	} else if !strings.Contains(err.Error(), "disagree about the hash key") {
		t.Error(err)
	}
	if err := limits.Close(); err != nil {
		t.Error(err)
	}
	if limits, err = open("two"); err != nil {
		t.Fatalf("once nobody has another key: %v", err)
	}
	if err := limits.Close(); err != nil {
		t.Error(err)
	}
}
