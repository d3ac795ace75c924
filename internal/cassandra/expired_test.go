package cassandra_test

import (
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/ratelimitd/ratelimitd/internal/cassandra"
	"github.com/ratelimitd/ratelimitd/internal/cassandra/cassandratest"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
	"github.com/ratelimitd/ratelimitd/internal/limiter/storetest"
)

// cellKey returns the key that a test of cells uses.
func cellKey() store.Key {
	keyer := keys.Keyer{}
	return keyer.For(keys.KeySpace{Policy: "p"}).Of(storetest.Somebody)
}

// cellChange returns a write that gives the cell of that version another one.
func cellChange(ids func(store.Instant) store.EventID, version store.EventID, value string) *store.Write {
	return &store.Write{
		Key: cellKey(), Level: policy.LevelQuorum,
		Cell: &store.CellWrite{
			If: version, Version: ids(store.InstantOf(time.Now())), Value: []byte(value), TTL: 2 * time.Hour, Serial: policy.LevelSerial,
		},
	}
}

// readCell returns the cell.
func readCell(t *testing.T, s *cassandra.Store, level policy.Level) store.Cell {
	t.Helper()
	state, err := s.Read(t.Context(), &store.Query{Key: cellKey(), Level: level, Cell: true})
	if err != nil {
		t.Fatal(err)
	}
	return state.Cell
}

func mustWrite(t *testing.T, store *cassandra.Store, w *store.Write) {
	t.Helper()
	if err := store.Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestNothingWalksOverWhatHasExpired puts thousands of rows beside a cell, as earlier versions
// did, that have expired. A node walks over them for hours, if it is made to, and refuses to at
// a hundred thousand.
func TestNothingWalksOverWhatHasExpired(t *testing.T) {
	config := newConfig(t)
	s := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	ids := store.NewEventIDs().Next
	const expired, batch = 5000, 100
	insert := "INSERT INTO " + config.Keyspace + ".cells (key, event_id, cost, ends_at) VALUES (?, ?, 1, 0) USING TTL 1"
	long := store.InstantOf(time.Now().Add(-2 * time.Hour))
	for range expired / batch {
		b := session.NewBatch(gocql.UnloggedBatch)
		for range batch {
			b.Query(insert, cellKey().Bytes(), gocql.UUID(ids(long)))
		}
		if err := session.ExecuteBatch(b); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2500 * time.Millisecond)
	walked := func() (most float64) {
		t.Helper()
		err := session.Query(`SELECT "max" FROM system_views.tombstones_per_read WHERE keyspace_name = ? AND table_name = 'cells'`,
			config.Keyspace).Scan(&most)
		if err != nil {
			t.Fatal(err)
		}
		return most
	}
	const few = 10
	var last store.EventID // of the cell
	write := func(change func(w *store.Write)) func() {
		return func() {
			w := cellChange(ids, last, "a")
			change(w)
			mustWrite(t, s, w)
			last = w.Cell.Version
		}
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"a read without a cell", func() { readCell(t, s, policy.LevelQuorum) }},
		{"a cell that is made", write(func(*store.Write) {})},
		{"a read", func() { readCell(t, s, policy.LevelQuorum) }},
		{"a serial read", func() { readCell(t, s, policy.LevelSerial) }},
		{"a change", write(func(*store.Write) {})},
		{"a removal", write(func(w *store.Write) { w.Cell.Version = store.EventID{} })},
		{"a cell that stays away", write(func(w *store.Write) { w.Cell.Version = store.EventID{} })},
		{"a cell that is made anew", write(func(*store.Write) {})},
	} {
		step.do()
		if n := walked(); n > few {
			t.Fatalf("%s walked over %v rows", step.name, n)
		}
	}
	if n := session.Query("SELECT event_id FROM "+config.Keyspace+".cells WHERE key = ?", cellKey().Bytes()).Iter().NumRows(); n != 1 {
		t.Errorf("%d rows, want the cell's", n)
	}
	if n := walked(); n < expired {
		t.Errorf("reading all of the partition walked over %v rows: this test would not notice", n)
	}
}

// TestCellAndItsRowComeAndGoTogether holds that the row that a cell is read with lives as long as the cell.
func TestCellAndItsRowComeAndGoTogether(t *testing.T) {
	config := newConfig(t)
	in := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	ids := store.NewEventIDs().Next
	made := cellChange(ids, store.EventID{}, "a")
	mustWrite(t, in, made)
	var ofVersion, ofRow int
	err := session.Query("SELECT TTL(version), TTL(cost) FROM "+config.Keyspace+".cells WHERE key = ? LIMIT 1", cellKey().Bytes()).
		Scan(&ofVersion, &ofRow)
	if err != nil || ofVersion != ofRow || ofRow < 7100 {
		t.Errorf("the cell lives for %d s, its row for %d s (%v)", ofVersion, ofRow, err)
	}
	for _, level := range []policy.Level{policy.LevelQuorum, policy.LevelSerial} {
		if c := readCell(t, in, level); c.Version != made.Cell.Version || string(c.Value) != "a" {
			t.Errorf("at %s: %+v", level, c)
		}
	}
	gone := cellChange(ids, made.Cell.Version, "")
	gone.Cell.Version = store.EventID{}
	mustWrite(t, in, gone)
	if c := readCell(t, in, policy.LevelSerial); c.Version != (store.EventID{}) || len(c.Value) > 0 {
		t.Errorf("after it was removed: %+v", c)
	}
	if n := rowsOf(t, session, &config, "cells"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}
