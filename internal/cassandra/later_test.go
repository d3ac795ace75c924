package cassandra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Before the cluster is reached every request fails at once, and says that nothing was stored;
// then all are answered. The engine is told the name of the data centre in between.
func TestLater(t *testing.T) {
	config := newConfig(t)
	door := cassandratest.NewDoor(t)
	config.Hosts, config.MigrateFirst = []string{door.Addr()}, true
	config.Timeout = 4 * time.Second // for as long nothing is answered once the data centre is known
	s, err := cassandra.OpenLater(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan string, 1)
	s.OnMove(func(datacenter string) error {
		if err := s.Ready(t.Context()); !errors.Is(err, store.ErrNotConnected) {
			t.Errorf("who counts is told where when the store answers: %v", err)
		}
		moved <- datacenter
		return nil
	})
	runWhile(t, s)
	for name, err := range requestAll(t, s) {
		if !errors.Is(err, store.ErrUnavailable) || !errors.Is(err, store.ErrNotConnected) {
			t.Errorf("%s: %v", name, err)
		}
		if notStored := errors.Is(err, store.ErrNotStored); notStored != (name != "read" && name != "changes" && name != "overrides") {
			t.Errorf("%s: not stored: %v", name, notStored)
		}
	}
	if _, known := s.ClockOffset(); known || s.Skewed() || s.Connected() || s.Datacenter() != "" {
		t.Error("something is known of a cluster that was not reached")
	}
	door.Open()
	waitReady(t, s)
	for name, err := range requestAll(t, s) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if name := <-moved; name == "" || name != s.Datacenter() {
		t.Errorf("moved to %q, which is %q", name, s.Datacenter())
	}
	if _, known := s.ClockOffset(); !known || !s.Connected() {
		t.Error("nothing is known of a cluster that answers")
	}
}

// A store that is opened on a cluster which stands still is there within seconds, and sooner when the caller gives up.
func TestLaterWhereNobodyAnswers(t *testing.T) {
	door := cassandratest.NewDoor(t)
	door.Stall()
	config := cassandra.Config{Hosts: []string{door.Addr()}, Keyspace: "k"}
	began := time.Now()
	store, err := cassandra.OpenLater(t.Context(), config)
	if took := time.Since(began); err != nil || took > 30*time.Second {
		t.Fatalf("%v after %v", err, took)
	}
	store.Close()
	const soon = 4 * time.Second // less than an attempt lasts of which nobody gives up
	for tries := 1; ; tries++ {  // a busy machine may be late, but hardly each time
		ctx, cancel := context.WithCancel(t.Context())
		<-door.Came() // who came before
		began = time.Now()
		go func() { <-door.Came(); cancel() }()
		_, err := cassandra.OpenLater(ctx, config)
		if took := time.Since(began); !errors.Is(err, context.Canceled) || took > soon && tries == 3 {
			t.Fatalf("%v after %v", err, took)
		} else if took <= soon {
			return
		}
	}
}

// requestAll makes a request of each kind, and returns their errors.
func requestAll(t *testing.T, s *cassandra.Later) map[string]error {
	t.Helper()
	const level = policy.LevelQuorum
	now := store.InstantOf(time.Now())
	ids := store.NewEventIDs().Next
	keyer := keys.Keyer{Namespace: t.Name()}
	q := store.Query{Key: keyer.For(keys.KeySpace{}).Of("a"), Level: level, Logs: []store.LogQuery{{Span: store.SpanHour, Max: 1}}}
	write := func() *store.Write {
		return &store.Write{
			Key: q.Key, Level: level, Logs: []store.LogWrite{{Span: store.SpanHour, TTL: time.Minute}},
			Events: []store.Event{{ID: ids(now), At: now, Cost: 1}},
		}
	}
	errs := make(map[string]error)
	_, errs["read"] = s.Read(t.Context(), &q)
	errs["write"] = s.Write(t.Context(), write())
	s.WriteEach(t.Context(), []store.Write{*write()}, func(_ int, err error) { errs["write each"] = err })
	_, _, errs["write then read"] = s.WriteThenRead(t.Context(), write(), &q)
	errs["publish"] = s.Publish(t.Context(), &store.Change{ID: ids(now), Kind: store.ChangeReset, Key: q.Key, TTL: time.Minute})
	_, errs["changes"] = s.Changes(t.Context(), &store.ChangeQuery{Since: now})
	_, errs["overrides"] = s.Overrides(t.Context(), "")
	return errs
}
