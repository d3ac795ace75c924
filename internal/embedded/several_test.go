package embedded_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// shards is how many parts a store's keys fall into; with as many keys at most, each
// part has room for one.
const shards = 64

// keysOf returns n keys that fall into the same part of a store, or each into another.
func keysOf(n int, same bool) []store.Key {
	keyer := keys.Keyer{}
	of := keyer.For(keys.KeySpace{Policy: "p"})
	var all []store.Key
	taken := make(map[uint64]bool)
	for i := 0; len(all) < n; i++ {
		k := of.Of(keys.Identifier(strconv.Itoa(i)))
		part := k.Prefix() % shards
		if len(all) > 0 && same != taken[part] {
			continue
		}
		taken[part] = true
		all = append(all, k)
	}
	return all
}

const start store.Instant = 1_772_452_800_000 // 2026-03-02 12:00 UTC

// clockAt is a clock that shows now, which the test turns.
func clockAt(now *store.Instant) func() time.Time {
	return func() time.Time { return now.Time() }
}

func countOf(units int64, expires store.Instant) []store.Count {
	return []store.Count{{Limit: "a", Start: start, Expires: expires, Units: units}}
}

// update adds a unit to a key's counter.
func update(t *testing.T, s *embedded.Store, expires store.Instant, key store.Key) error {
	t.Helper()
	return s.Update(t.Context(), &store.Query{Key: key}, func(_ *store.State, w *store.Write) { w.Add = countOf(1, expires) })
}

// updateAll adds a unit to every key's counter.
func updateAll(t *testing.T, s *embedded.Store, expires store.Instant, keys ...store.Key) error {
	t.Helper()
	q := make([]store.Query, len(keys))
	for i := range keys {
		q[i].Key = keys[i]
	}
	return s.UpdateAll(t.Context(), q, func(_ []store.State, w []store.Write) {
		for i := range w {
			w[i].Add = countOf(1, expires)
		}
	})
}

func units(t *testing.T, s store.Store, k store.Key) int64 {
	t.Helper()
	state, err := s.Read(t.Context(), &store.Query{Key: k, Counts: true})
	if err != nil {
		t.Fatal(err)
	}
	sum := int64(0)
	for _, c := range state.Counts {
		sum += c.Units
	}
	return sum
}

// TestUpdatesOfManyKeysMeet lets updates of the same keys in opposite orders meet, in
// one part of the store and in several.
func TestUpdatesOfManyKeysMeet(t *testing.T) {
	const callers, each, many = 8, 1000, 16
	for _, same := range []bool{true, false} {
		store, keys := embedded.New(nil), keysOf(many, same)
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				mine := slices.Clone(keys)
				if i%2 == 0 {
					slices.Reverse(mine)
				}
				for range each {
					if err := updateAll(t, store, start+1000, mine...); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, k := range keys {
			if got := units(t, store, k); got != callers*each {
				t.Errorf("in one part %v: %d units of %d", same, got, callers*each)
			}
		}
	}
}

func TestWithoutRoomForOneKeyNothingIsStored(t *testing.T) {
	now := start
	s := embedded.New(&embedded.Options{MaxKeys: shards, Now: clockAt(&now)})
	keys := append(keysOf(2, true), keysOf(5, false)[1:]...)
	taken, full, others := keys[0], keys[1], keys[2:]
	if err := updateAll(t, s, start+1000, taken); err != nil {
		t.Fatal(err)
	}
	writes := make([]store.Write, 0, 4)
	for _, k := range []store.Key{others[0], taken, full, others[1]} {
		writes = append(writes, store.Write{Key: k, Add: countOf(1, start+1000)})
	}
	for name, err := range map[string]error{
		"Update":    update(t, s, start+1000, full),
		"UpdateAll": updateAll(t, s, start+1000, others[0], taken, full, others[1]),
		"Write":     s.Write(t.Context(), &writes[2]),
	} {
		if !errors.Is(err, store.ErrOverloaded) || !errors.Is(err, store.ErrNotStored) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := units(t, s, taken); got != 1 || s.Len() != 1 {
		t.Errorf("%d keys are kept, the one that was there with %d units", s.Len(), got)
	}
}

// TestRoomIsNotMadeAmongTheKeysOfAnUpdate has an update of a key that has expired and
// of a new one, which there would be room for in the other's place.
func TestRoomIsNotMadeAmongTheKeysOfAnUpdate(t *testing.T) {
	now := start
	s := embedded.New(&embedded.Options{MaxKeys: shards, Now: clockAt(&now)})
	keys := keysOf(2, true)
	if err := updateAll(t, s, start+1000, keys[0]); err != nil {
		t.Fatal(err)
	}
	now += 1000
	if err := updateAll(t, s, start+9000, keys...); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("both: %v", err)
	}
	if err := update(t, s, start+9000, keys[1]); err != nil {
		t.Errorf("the new one alone: %v", err)
	}
}

func TestWhatStoresNothingMakesNoKey(t *testing.T) {
	s, keys := embedded.New(nil), keysOf(2, true)
	q := []store.Query{{Key: keys[0], Cell: true}, {Key: keys[1]}}
	err := s.UpdateAll(t.Context(), q, func(_ []store.State, w []store.Write) {
		w[0].Cell = new(store.CellWrite)
		w[1].Remove = []store.EventID{{1}}
		w[1].Logs = []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 1}}
	})
	if err != nil || s.Len() != 0 {
		t.Errorf("%d keys are kept, %v", s.Len(), err)
	}
	for i := range q {
		err := s.Update(t.Context(), &q[i], func(_ *store.State, w *store.Write) {
			w.Cell, w.Remove = new(store.CellWrite), []store.EventID{{1}}
			w.Logs = []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 1}}
		})
		if err != nil || s.Len() != 0 {
			t.Errorf("%d keys are kept, %v", s.Len(), err)
		}
	}
}

// TestNothingOfAnEarlierUpdateIsLeft reads a key that has nothing after one that has
// everything, in the same part of the store.
func TestNothingOfAnEarlierUpdateIsLeft(t *testing.T) {
	in, keys := embedded.New(nil), keysOf(3, true)
	fill := store.Write{
		Key: keys[0], Add: countOf(1, start+1000), Reset: 1, ResetTTL: time.Hour,
		Cell:   &store.CellWrite{Version: store.EventID{1}, Value: []byte("a")},
		Events: []store.Event{{ID: store.EventID{1}, At: start, Cost: 1}},
		Logs:   []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 9}},
	}
	if err := in.Write(t.Context(), &fill); err != nil {
		t.Fatal(err)
	}
	for i, k := range []store.Key{keys[0], keys[1], keys[0], keys[2]} {
		decide := func(s *store.State, w *store.Write) {
			if len(s.Logs) != 1 {
				t.Errorf("%d logs were read, one was asked for", len(s.Logs))
			}
			if k != keys[0] && (len(s.Counts)+len(s.Logs[0].Events) > 0 || s.Reset != 0 || s.Cell.Value != nil || w.Add != nil) {
				t.Errorf("of a key that has nothing: %+v, %+v", s, w)
			}
			w.Add = countOf(1, start+1000)
		}
		q := store.Query{Key: k, Counts: true, Cell: true, Logs: []store.LogQuery{{Span: store.SpanHour, Max: 9}}}
		err := error(nil)
		if i < 2 {
			err = in.Update(t.Context(), &q, decide)
		} else {
			err = in.UpdateAll(t.Context(), []store.Query{q}, func(s []store.State, w []store.Write) { decide(&s[0], &w[0]) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
