package cassandra_test

import (
	"fmt"
	"sync"
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
		Key: cellKey(), Level: policy.LevelQuorum, Logs: []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour}},
		Cell: &store.CellWrite{
			If: version, Version: ids(store.InstantOf(time.Now())), Value: []byte(value), TTL: 2 * time.Hour, Serial: policy.LevelSerial,
		},
	}
}

// readCell returns the cell and up to most events of the last hour beside it.
func readCell(t *testing.T, s *cassandra.Store, level policy.Level, most int) store.State {
	t.Helper()
	q := store.Query{Key: cellKey(), Level: level, Cell: true, Logs: []store.LogQuery{{
		Span: store.SpanHour, After: store.InstantOf(time.Now().Add(-time.Hour)), Max: most,
	}}}
	state, err := s.Read(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func mustWrite(t *testing.T, store *cassandra.Store, w *store.Write) {
	t.Helper()
	if err := store.Write(t.Context(), w); err != nil {
		t.Fatal(err)
	}
}

// TestNothingWalksOverWhatHasExpired puts thousands of rows beside a cell that are older
// than any window and have expired. A node walks over them for hours, if it is made to,
// and refuses to at a hundred thousand.
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
		{"a read without a cell", func() { readCell(t, s, policy.LevelQuorum, 10) }},
		{"a cell that is made", write(func(*store.Write) {})},
		{"a read", func() { readCell(t, s, policy.LevelQuorum, 10) }},
		{"a serial read", func() { readCell(t, s, policy.LevelSerial, 10) }},
		{"a long read", func() { readCell(t, s, policy.LevelSerial, 1000) }},
		{"a read of a cell alone", func() {
			if _, err := s.Read(t.Context(), &store.Query{Key: cellKey(), Level: policy.LevelSerial, Cell: true}); err != nil {
				t.Fatal(err)
			}
		}},
		{"a change", write(func(w *store.Write) {
			w.Events = []store.Event{{ID: w.Cell.Version, At: w.Cell.Version.Instant(), Cost: 1}}
		})},
		{"a removal", write(func(w *store.Write) { w.Cell.Version = store.EventID{} })},
		{"a cell that stays away", write(func(w *store.Write) { w.Cell.Version = store.EventID{} })},
		{"a cell that is made anew", write(func(*store.Write) {})},
	} {
		step.do()
		if n := walked(); n > few {
			t.Fatalf("%s walked over %v rows", step.name, n)
		}
	}
	if n := session.Query("SELECT event_id FROM "+config.Keyspace+".cells WHERE key = ?", cellKey().Bytes()).Iter().NumRows(); n != 2 {
		t.Errorf("%d rows, want the cell's and an event's", n)
	}
	if n := walked(); n < expired {
		t.Errorf("reading all of the partition walked over %v rows: this test would not notice", n)
	}
}

// TestCellAndItsRowComeAndGoTogether looks at the row that a cell is read with: it lives
// as long, and no read takes it for an event.
func TestCellAndItsRowComeAndGoTogether(t *testing.T) {
	config := newConfig(t)
	in := newStore(t, config)
	session := cassandratest.Session(t, config.Hosts...)
	ids := store.NewEventIDs().Next
	made := cellChange(ids, store.EventID{}, "a")
	const events = 150
	first := store.InstantOf(time.Now().Add(-time.Minute))
	for i := range events {
		at := first.Add(time.Duration(i) * time.Millisecond)
		made.Events = append(made.Events, store.Event{ID: ids(at), At: at, Cost: int64(i) + 1})
	}
	ahead := store.InstantOf(time.Now().Add(24 * time.Hour))
	made.Events = append(made.Events, store.Event{ID: ids(ahead), At: ahead, Cost: events + 1})
	mustWrite(t, in, made)
	var ofVersion, ofRow int
	err := session.Query("SELECT TTL(version), TTL(cost) FROM "+config.Keyspace+".cells WHERE key = ? LIMIT 1", cellKey().Bytes()).
		Scan(&ofVersion, &ofRow)
	if err != nil || ofVersion != ofRow || ofRow < 7100 {
		t.Errorf("the cell lives for %d s, its row for %d s (%v)", ofVersion, ofRow, err)
	}
	for _, level := range []policy.Level{policy.LevelQuorum, policy.LevelSerial} {
		for _, most := range []int{1, 2, 63, 64, 65, events, events + 1, 1000} {
			s := readCell(t, in, level, most)
			checkNewest(t, fmt.Sprintf("%d at %s", most, level), s.Logs[0].Events, min(most, events+1))
			if s.Cell.Version != made.Cell.Version || string(s.Cell.Value) != "a" {
				t.Errorf("%d at %s: %+v", most, level, s.Cell)
			}
		}
	}
	gone := cellChange(ids, made.Cell.Version, "")
	gone.Cell.Version = store.EventID{}
	mustWrite(t, in, gone)
	s := readCell(t, in, policy.LevelSerial, 1000)
	checkNewest(t, "without the cell", s.Logs[0].Events, events+1)
	if s.Cell.Version != (store.EventID{}) || len(s.Cell.Value) > 0 {
		t.Errorf("after it was removed: %+v", s.Cell)
	}
	if n := rowsOf(t, session, &config, "cells"); n != events+1 {
		t.Errorf("%d rows are left, want %d", n, events+1)
	}
}

// checkNewest wants the newest n events or one more, oldest first. Their costs count up.
func checkNewest(t *testing.T, what string, events []store.Event, n int) {
	t.Helper()
	if len(events) != n && len(events) != n+1 {
		t.Errorf("%s: %d events, want %d", what, len(events), n)
		return
	}
	for i := range events {
		if want := events[len(events)-1].Cost - int64(len(events)-1-i); events[i].Cost != want || events[i].Cost < 1 {
			t.Errorf("%s: the event at %d costs %d, want %d", what, i, events[i].Cost, want)
		}
	}
}

// TestLongLogBesideACellThatChanges reads a log that takes two requests while the cell
// changes all the time: the value is always that of the version, and soon there.
func TestLongLogBesideACellThatChanges(t *testing.T) {
	in := newStore(t, newConfig(t))
	ids := store.NewEventIDs().Next
	made := cellChange(ids, store.EventID{}, "")
	made.Cell.Value = made.Cell.Version[:]
	mustWrite(t, in, made)
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for last := made.Cell.Version; ; {
			select {
			case <-stop:
				return
			default:
			}
			w := cellChange(ids, last, "")
			w.Cell.Value = w.Cell.Version[:]
			if err := in.Write(t.Context(), w); err != nil {
				t.Error(err)
				return
			}
			last = w.Cell.Version
		}
	})
	const versions, reads = 5, 80
	seen := map[store.EventID]bool{}
	enough := time.Now().Add(30 * time.Second)
	for n := 0; n < reads || len(seen) < versions && time.Now().Before(enough); n++ {
		s := readCell(t, in, policy.LevelQuorum, 100)
		seen[s.Cell.Version] = true
		if string(s.Cell.Value) != string(s.Cell.Version[:]) {
			t.Errorf("version %x with the value %x", s.Cell.Version, s.Cell.Value)
		}
	}
	close(stop)
	changes.Wait()
	if len(seen) < versions {
		t.Errorf("%d versions seen: it did not change while it was read", len(seen))
	}
}
