package cassandra_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// Before the cluster is reached every request fails at once, and says that nothing was stored;
// then all are answered. Who counts is told the name of the data centre in between.
func TestLater(t *testing.T) {
	config := newConfig(t)
	door := cassandratest.NewDoor(t)
	config.Hosts, config.MigrateFirst = []string{door.Addr()}, true
	store, err := cassandra.OpenLater(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	moved := make(chan string, 1)
	store.OnMove(func(datacenter string) error {
		if err := store.Ready(t.Context()); !errors.Is(err, limiter.ErrNotConnected) {
			t.Errorf("who counts is told where when the store answers: %v", err)
		}
		moved <- datacenter
		return nil
	})
	runWhile(t, store)
	for name, err := range requestAll(t, store) {
		if !errors.Is(err, limiter.ErrUnavailable) || !errors.Is(err, limiter.ErrNotConnected) {
			t.Errorf("%s: %v", name, err)
		}
		if notStored := errors.Is(err, limiter.ErrNotStored); notStored != (name != "read" && name != "changes") {
			t.Errorf("%s: not stored: %v", name, notStored)
		}
	}
	if _, known := store.ClockOffset(); known || store.Skewed() || store.Connected() || store.Datacenter() != "" {
		t.Error("something is known of a cluster that was not reached")
	}
	door.Open()
	waitReady(t, store)
	for name, err := range requestAll(t, store) {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if name := <-moved; name == "" || name != store.Datacenter() {
		t.Errorf("moved to %q, which is %q", name, store.Datacenter())
	}
	if _, known := store.ClockOffset(); !known || !store.Connected() {
		t.Error("nothing is known of a cluster that answers")
	}
}

// A store that is opened on a cluster which stands still is there within seconds, and sooner when
// who opens it gives up.
func TestLaterWhereNobodyAnswers(t *testing.T) {
	door := cassandratest.NewDoor(t)
	door.Stall()
	config := cassandra.Config{Hosts: []string{door.Addr()}, Keyspace: "k"}
	began := time.Now()
	store, err := cassandra.OpenLater(t.Context(), config)
	if took := time.Since(began); err != nil || took > 15*time.Second {
		t.Fatalf("%v after %v", err, took)
	}
	store.Close()
	ctx, cancel := context.WithCancel(t.Context())
	<-door.Came() // who came before
	began = time.Now()
	go func() { <-door.Came(); cancel() }()
	if _, err := cassandra.OpenLater(ctx, config); !errors.Is(err, context.Canceled) || time.Since(began) > 4*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

// requestAll makes a request of each kind, and returns their errors.
func requestAll(t *testing.T, store *cassandra.Later) map[string]error {
	t.Helper()
	const level = limiter.LevelQuorum
	now := limiter.InstantOf(time.Now())
	ids := limiter.NewEventIDs()
	keyer := limiter.Keyer{Namespace: t.Name()}
	q := limiter.Query{Key: keyer.For(limiter.KeySpace{}).Of("a"), Level: level, Logs: []limiter.LogQuery{{Span: limiter.SpanHour, Max: 1}}}
	write := func() *limiter.Write {
		return &limiter.Write{
			Key: q.Key, Level: level, Logs: []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Minute}},
			Events: []limiter.Event{{ID: ids(now), At: now, Cost: 1}},
		}
	}
	errs := make(map[string]error)
	_, errs["read"] = store.Read(t.Context(), &q)
	errs["write"] = store.Write(t.Context(), write())
	errs["write all"] = store.WriteAll(t.Context(), []limiter.Write{*write()})
	store.WriteEach(t.Context(), []limiter.Write{*write()}, func(_ int, err error) { errs["write each"] = err })
	_, _, errs["write then read"] = store.WriteThenRead(t.Context(), write(), &q)
	errs["publish"] = store.Publish(t.Context(), &limiter.Change{ID: ids(now), Kind: limiter.ChangeReset, Key: q.Key, TTL: time.Minute})
	_, errs["changes"] = store.Changes(t.Context(), &limiter.ChangeQuery{Since: now})
	return errs
}
