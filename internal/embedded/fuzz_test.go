package embedded_test

import (
	"context"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// FuzzRecordsReadBack opens what a disk may hold of a key: what is taken says the same
// after it was changed, saved and opened again.
func FuzzRecordsReadBack(f *testing.F) {
	key := keysOf(1, true)[0]
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	disk := new(memory)
	clock := start.Time
	s, err := embedded.Open(&embedded.Options{Disk: disk, Now: clock})
	if err != nil {
		f.Fatal(err)
	}
	full := store.Write{
		Key: key, Add: countOf(1, start+1), Remove: []store.EventID{{2}}, Reset: start - 1, ResetTTL: time.Hour,
		Events: []store.Event{{ID: store.EventID{1}, At: start, Cost: 1, Ends: start + 1}, {ID: store.EventID{3}, At: start + 2, Cost: 5}},
		Logs:   []store.LogWrite{{Span: store.SpanDay, TTL: time.Hour, Keep: 9}},
		Cell:   &store.CellWrite{Version: store.EventID{4}, Value: []byte("a")},
	}
	for _, w := range []store.Write{{Key: key, Add: countOf(1, start+1)}, full} {
		if err := s.Write(ctx, &w); err != nil {
			f.Fatal(err)
		}
		if err := s.Run(ctx); err != nil {
			f.Fatal(err)
		}
		f.Add(slices.Collect(maps.Values(disk.records))[0].Value)
	}
	f.Add([]byte{1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, value []byte) {
		disk := &memory{records: map[string]embedded.Record{"": {Table: embedded.TableKeys, Key: key.Bytes(), Value: value}}}
		opts := embedded.Options{Disk: disk, Now: clock}
		s, err := embedded.Open(&opts)
		if err != nil || s.Len() == 0 {
			return
		}
		want := stateOf(t, s, key)
		touch := store.Write{Key: key, Remove: []store.EventID{{0xff, 0xfe}}}
		if err := s.Write(ctx, &touch); err != nil {
			t.Fatal(err)
		}
		disk.records = nil
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if s, err = embedded.Open(&opts); err != nil || s.Len() != 1 {
			t.Fatalf("%x was taken, and what was saved of it is not: %v", value, err)
		}
		if got := stateOf(t, s, key); !reflect.DeepEqual(got, want) {
			t.Fatalf("%x: %+v, and after it was saved %+v", value, want, got)
		}
	})
}

// stateOf returns all that store tells of key.
func stateOf(t *testing.T, in *embedded.Store, key store.Key) store.State {
	t.Helper()
	q := store.Query{Key: key, Counts: true, Cell: true, ExpireAfter: math.MinInt64}
	for span := range store.SpanCount {
		q.Logs = append(q.Logs, store.LogQuery{Span: span, After: math.MinInt64, Max: math.MaxInt32})
	}
	s, err := in.Read(t.Context(), &q)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range s.Logs {
		for _, e := range l.Events {
			if e.Cost < 1 {
				t.Fatalf("an event of cost %d was taken", e.Cost)
			}
		}
	}
	return s
}
