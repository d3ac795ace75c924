package cassandra_test

import (
	"context"
	"crypto/rand"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// Writes that are given together are stored as each by itself would be, whatever they are of,
// share requests where they can, and are told what became of them one by one.
func TestWriteEach(t *testing.T) {
	const all, bad = 30, 7
	s := newStore(t, commonConfig(t))
	var trips, travelled atomic.Int64
	s.WatchTrips(func(n int) { trips.Add(1); travelled.Add(int64(n)) })
	ids, now := store.NewEventIDs().Next, store.InstantOf(time.Now())
	level := policy.LevelLocalQuorum
	logs := []store.LogWrite{{Span: store.SpanHour, TTL: time.Minute}}
	window := store.Count{Limit: "w", Start: now, Expires: now.Add(time.Minute), Units: 3}
	var writes []store.Write
	for i := range all {
		id, keyer := ids(now), keys.Keyer{Namespace: rand.Text()}
		w := store.Write{Key: keyer.For(keys.KeySpace{}).Of("somebody"), Level: level, Logs: logs}
		w.Events = []store.Event{{ID: id, At: id.Instant(), Cost: 2}}
		switch {
		case i == bad:
			w.Logs = []store.LogWrite{{Span: store.SpanHour, TTL: 100 * 365 * 24 * time.Hour}} // Cassandra refuses it
		case i%5 == 1:
			w.Add = []store.Count{window}
		case i%5 == 2 && i != bad:
			total := store.Tally{Count: window, Stamp: 1, TTL: time.Minute}
			total.Row = id
			w = store.Write{Key: w.Key, Level: level, Put: []store.Tally{total}, Tally: true}
		case i%5 == 3:
			gone := w
			gone.Events = []store.Event{{ID: ids(now), At: now, Cost: 1}}
			if err := s.Write(t.Context(), &gone); err != nil {
				t.Fatal(err)
			}
			w.Remove = []store.EventID{gone.Events[0].ID}
		case i%5 == 4:
			w.Reset, w.ResetTTL = now.Add(-time.Minute), time.Minute
		}
		writes = append(writes, w)
	}
	errs, told := make([]error, all), make([]int, all)
	var mu sync.Mutex
	s.WriteEach(t.Context(), writes, func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		errs[i], told[i] = err, told[i]+1
	})
	for i := range writes {
		if (errs[i] != nil) != (i == bad) || told[i] != 1 {
			t.Errorf("write %d is told %d times, at last %v", i, told[i], errs[i])
		}
		if got, want := stored(t, s, &writes[i]), i != bad; got != want {
			t.Errorf("write %d is stored: %v", i, got)
		}
	}
	// One that fails has those with it sent by themselves, which are no trips.
	if n := travelled.Load(); trips.Load() == 0 || n < 2*trips.Load() {
		t.Errorf("%d writes in %d trips: want at least two in each", n, trips.Load())
	}
}

// stored reports whether all that w counts is read.
func stored(t *testing.T, in store.Store, w *store.Write) bool {
	t.Helper()
	q := store.Query{
		Key: w.Key, Level: w.Level, Counts: len(w.Add) > 0, Tally: len(w.Put) > 0, Span: w.Span,
		Logs: []store.LogQuery{{Span: store.SpanHour, Max: 5}},
	}
	s, err := in.Read(context.WithoutCancel(t.Context()), &q)
	if err != nil {
		t.Fatal(err)
	}
	var units int64
	for _, c := range s.Counts {
		units += c.Units
	}
	var cost int64
	for _, e := range s.Logs[0].Events {
		cost += e.Cost
	}
	return units == 3*int64(len(w.Add)+len(w.Put)) && cost == 2*int64(len(w.Events)) && s.Reset == w.Reset
}
