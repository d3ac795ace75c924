package embedded_test

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// shards is how many parts a store's keys fall into; with as many keys at most, each
// part has room for one.
const shards = 64

// keysOf returns n keys that fall into the same part of a store, or each into another.
func keysOf(n int, same bool) []limiter.Key {
	keyer := limiter.Keyer{}
	of := keyer.For(limiter.KeySpace{Policy: "p"})
	var keys []limiter.Key
	taken := make(map[uint64]bool)
	for i := 0; len(keys) < n; i++ {
		k := of.Of(limiter.Identifier(strconv.Itoa(i)))
		part := k.Prefix() % shards
		if len(keys) > 0 && same != taken[part] {
			continue
		}
		taken[part] = true
		keys = append(keys, k)
	}
	return keys
}

const start limiter.Instant = 1_772_452_800_000 // 2026-03-02 12:00 UTC

// clockAt is a clock that shows now, which the test turns.
func clockAt(now *limiter.Instant) func() time.Time {
	return func() time.Time { return now.Time() }
}

func countOf(units int64, expires limiter.Instant) []limiter.Count {
	return []limiter.Count{{Limit: "a", Start: start, Expires: expires, Units: units}}
}

// update adds a unit to a key's counter.
func update(t *testing.T, store *embedded.Store, expires limiter.Instant, key limiter.Key) error {
	t.Helper()
	return store.Update(t.Context(), &limiter.Query{Key: key}, func(_ *limiter.State, w *limiter.Write) { w.Add = countOf(1, expires) })
}

// updateAll adds a unit to every key's counter.
func updateAll(t *testing.T, store *embedded.Store, expires limiter.Instant, keys ...limiter.Key) error {
	t.Helper()
	q := make([]limiter.Query, len(keys))
	for i := range keys {
		q[i].Key = keys[i]
	}
	return store.UpdateAll(t.Context(), q, func(_ []limiter.State, w []limiter.Write) {
		for i := range w {
			w[i].Add = countOf(1, expires)
		}
	})
}

func units(t *testing.T, store limiter.Store, k limiter.Key) int64 {
	t.Helper()
	state, err := store.Read(t.Context(), &limiter.Query{Key: k, Counts: true})
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
	store := embedded.New(&embedded.Options{MaxKeys: shards, Now: clockAt(&now)})
	keys := append(keysOf(2, true), keysOf(5, false)[1:]...)
	taken, full, others := keys[0], keys[1], keys[2:]
	if err := updateAll(t, store, start+1000, taken); err != nil {
		t.Fatal(err)
	}
	writes := make([]limiter.Write, 0, 4)
	for _, k := range []limiter.Key{others[0], taken, full, others[1]} {
		writes = append(writes, limiter.Write{Key: k, Add: countOf(1, start+1000)})
	}
	for name, err := range map[string]error{
		"Update":    update(t, store, start+1000, full),
		"UpdateAll": updateAll(t, store, start+1000, others[0], taken, full, others[1]),
		"WriteAll":  store.WriteAll(t.Context(), writes),
		"Write":     store.Write(t.Context(), &writes[2]),
	} {
		if !errors.Is(err, limiter.ErrOverloaded) || !errors.Is(err, limiter.ErrNotStored) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := units(t, store, taken); got != 1 || store.Len() != 1 {
		t.Errorf("%d keys are kept, the one that was there with %d units", store.Len(), got)
	}
}

// TestRoomIsNotMadeAmongTheKeysOfAnUpdate has an update of a key that has expired and
// of a new one, which there would be room for in the other's place.
func TestRoomIsNotMadeAmongTheKeysOfAnUpdate(t *testing.T) {
	now := start
	store := embedded.New(&embedded.Options{MaxKeys: shards, Now: clockAt(&now)})
	keys := keysOf(2, true)
	if err := updateAll(t, store, start+1000, keys[0]); err != nil {
		t.Fatal(err)
	}
	now += 1000
	if err := updateAll(t, store, start+9000, keys...); !errors.Is(err, limiter.ErrOverloaded) {
		t.Errorf("both: %v", err)
	}
	if err := update(t, store, start+9000, keys[1]); err != nil {
		t.Errorf("the new one alone: %v", err)
	}
}

func TestWhatStoresNothingMakesNoKey(t *testing.T) {
	store, keys := embedded.New(nil), keysOf(2, true)
	q := []limiter.Query{{Key: keys[0], Cell: true}, {Key: keys[1]}}
	err := store.UpdateAll(t.Context(), q, func(_ []limiter.State, w []limiter.Write) {
		w[0].Cell = new(limiter.CellWrite)
		w[1].Remove = []limiter.EventID{{1}}
		w[1].Logs = []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 1}}
	})
	if err != nil || store.Len() != 0 {
		t.Errorf("%d keys are kept, %v", store.Len(), err)
	}
	for i := range q {
		err := store.Update(t.Context(), &q[i], func(_ *limiter.State, w *limiter.Write) {
			w.Cell, w.Remove = new(limiter.CellWrite), []limiter.EventID{{1}}
			w.Logs = []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 1}}
		})
		if err != nil || store.Len() != 0 {
			t.Errorf("%d keys are kept, %v", store.Len(), err)
		}
	}
}

// TestNothingOfAnEarlierUpdateIsLeft reads a key that has nothing after one that has
// everything, in the same part of the store.
func TestNothingOfAnEarlierUpdateIsLeft(t *testing.T) {
	store, keys := embedded.New(nil), keysOf(3, true)
	fill := limiter.Write{
		Key: keys[0], Add: countOf(1, start+1000), Reset: 1, ResetTTL: time.Hour,
		Cell:   &limiter.CellWrite{Version: limiter.EventID{1}, Value: []byte("a")},
		Events: []limiter.Event{{ID: limiter.EventID{1}, At: start, Cost: 1}},
		Logs:   []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 9}},
	}
	if err := store.Write(t.Context(), &fill); err != nil {
		t.Fatal(err)
	}
	for i, k := range []limiter.Key{keys[0], keys[1], keys[0], keys[2]} {
		decide := func(s *limiter.State, w *limiter.Write) {
			if len(s.Logs) != 1 {
				t.Errorf("%d logs were read, one was asked for", len(s.Logs))
			}
			if k != keys[0] && (len(s.Counts)+len(s.Logs[0].Events) > 0 || s.Reset != 0 || s.Cell.Value != nil || w.Add != nil) {
				t.Errorf("of a key that has nothing: %+v, %+v", s, w)
			}
			w.Add = countOf(1, start+1000)
		}
		q := limiter.Query{Key: k, Counts: true, Cell: true, Logs: []limiter.LogQuery{{Span: limiter.SpanHour, Max: 9}}}
		err := error(nil)
		if i < 2 {
			err = store.Update(t.Context(), &q, decide)
		} else {
			err = store.UpdateAll(t.Context(), []limiter.Query{q}, func(s []limiter.State, w []limiter.Write) { decide(&s[0], &w[0]) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
