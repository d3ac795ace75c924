package storetest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/keys"
	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// subject is one key of the store under test, which no other test uses.
type subject struct {
	t     testing.TB
	store store.Store
	key   store.Key
	ids   func(store.Instant) store.EventID
}

func newSubject(t testing.TB, s store.Store) *subject {
	keyer := keys.Keyer{Namespace: rand.Text()}
	return &subject{
		t: t, store: s,
		key: keyer.For(keys.KeySpace{Policy: "contract"}).Of("somebody"),
		ids: store.NewEventIDs().Next,
	}
}

const noon store.Instant = 1_772_452_800_000 // 2026-03-02 12:00 UTC

// write stores w under the subject's key, into the log of an hour unless w says
// otherwise.
func (s *subject) write(w store.Write) {
	s.t.Helper()
	w.Key, w.Level = s.key, policy.LevelQuorum
	if w.Logs == nil {
		w.Logs = []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 10_000}}
	}
	if err := s.store.Write(s.t.Context(), &w); err != nil {
		s.t.Fatal(err)
	}
}

// append stores events of cost 1, 2, … at these instants and returns their ids.
func (s *subject) append(at ...store.Instant) []store.EventID {
	s.t.Helper()
	var w store.Write
	var ids []store.EventID
	for i, instant := range at {
		ids = append(ids, s.ids(instant))
		w.Events = append(w.Events, store.Event{ID: ids[i], At: instant, Cost: int64(i + 1)})
	}
	s.write(w)
	return ids
}

func (s *subject) read(q store.Query) store.State {
	s.t.Helper()
	q.Key, q.Level = s.key, policy.LevelQuorum
	state, err := s.store.Read(s.t.Context(), &q)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// costs returns the costs of the newest n events of span later than after.
func (s *subject) costs(span store.Span, after store.Instant, n int) []int64 {
	s.t.Helper()
	state := s.read(store.Query{Logs: []store.LogQuery{{Span: span, After: after, Max: n}}})
	costs := []int64{}
	for _, e := range state.Logs[0].Events {
		costs = append(costs, e.Cost)
	}
	return costs
}

func (s *subject) wantCosts(after store.Instant, n int, want ...int64) {
	s.t.Helper()
	if got := s.costs(store.SpanHour, after, n); !slices.Equal(got, want) {
		s.t.Errorf("the newest %d events after noon%+d ms have the costs %v, want %v", n, after-noon, got, want)
	}
}

func testEventsNewestOfThoseLater(t *testing.T, store store.Store) {
	s := newSubject(t, store)
	s.wantCosts(0, 5)
	s.append(noon, noon+1, noon+1000, noon+2000)
	s.wantCosts(0, 10, 1, 2, 3, 4)
	s.wantCosts(0, 2, 3, 4)
	s.wantCosts(noon, 10, 2, 3, 4)
	s.wantCosts(noon+1, 10, 3, 4)
	s.wantCosts(noon+1000, 10, 4)
	s.wantCosts(noon+2000, 10)
}

func testEventsOutOfOrder(t *testing.T, store store.Store) {
	s := newSubject(t, store)
	s.append(noon+2000, noon, noon+1000)
	s.wantCosts(0, 10, 2, 3, 1)
	s.wantCosts(noon, 10, 3, 1)
}

func testEventsOfOneMillisecond(t *testing.T, in store.Store) {
	const n = 1000
	s := newSubject(t, in)
	for range n / 50 {
		s.append(slices.Repeat([]store.Instant{noon}, 50)...)
	}
	state := s.read(store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, After: noon - 1, Max: 2 * n}}})
	if got := len(state.Logs[0].Events); got != n {
		t.Errorf("%d rows for %d events", got, n)
	}
	for _, e := range state.Logs[0].Events {
		if e.At != noon {
			t.Fatalf("an event at noon%+d ms", e.At-noon)
		}
	}
}

func testEventsRemoved(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	ids := s.append(noon, noon, noon+1)
	for range 2 { // safe to repeat
		s.write(store.Write{Remove: ids[1:2]})
		s.wantCosts(0, 10, 1, 3)
	}
	s.write(store.Write{Remove: []store.EventID{ids[0], ids[2]}})
	s.wantCosts(0, 10)
}

func testSpansAreApart(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	event := store.Event{ID: s.ids(noon), At: noon, Cost: 7}
	for _, span := range []store.Span{store.SpanDay, store.SpanMonth} {
		s.write(store.Write{Events: []store.Event{event}, Logs: []store.LogWrite{{Span: span, TTL: time.Hour, Keep: 10}}})
	}
	for span, want := range [store.SpanCount]int{0, 1, 1} {
		if got := s.costs(store.Span(span), 0, 10); len(got) != want {
			t.Errorf("span %d: %v", span, got)
		}
	}
}

// unitsOf returns a counter of a limit whose window starts at start; it expires
// two minutes later, like that of a sliding tail of a minute.
func unitsOf(limit policy.LimitID, start, epoch store.Instant, units int64) store.Count {
	return store.Count{Limit: limit, Start: start, Expires: start + 120_000, Epoch: epoch, Units: units}
}

func (s *subject) wantCounts(expireAfter store.Instant, want ...store.Count) {
	s.t.Helper()
	got := s.read(store.Query{Counts: true, ExpireAfter: expireAfter}).Counts
	byStart := func(a, b store.Count) int {
		return int(a.Start-b.Start)*10 + int(a.Epoch-b.Epoch) + len(a.Limit) - len(b.Limit)
	}
	slices.SortFunc(got, byStart)
	slices.SortFunc(want, byStart)
	if !slices.Equal(got, want) {
		s.t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func testCountersAddUp(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	s.wantCounts(0)
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon, 0, 2), unitsOf("long", noon, 0, 1)}})
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon, 0, 3)}})
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon, 0, -1)}})
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon+60_000, 0, 1)}})
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon, noon+5, 9)}})
	first, long := unitsOf("a", noon, 0, 4), unitsOf("long", noon, 0, 1)
	second, after := unitsOf("a", noon+60_000, 0, 1), unitsOf("a", noon, noon+5, 9)
	s.wantCounts(0, first, long, second, after)
	s.wantCounts(noon+119_999, first, long, second, after)
	s.wantCounts(noon+120_000, second)
}

func testCountersAtTheSameTime(t *testing.T, in store.Store) {
	const writers, each = 8, 25
	s := newSubject(t, in)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				w := store.Write{Key: s.key, Level: policy.LevelQuorum, Add: []store.Count{unitsOf("a", noon, 0, 1)}}
				if err := in.Write(t.Context(), &w); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantCounts(0, unitsOf("a", noon, 0, writers*each))
}

func testResetIsReadWithTheCount(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	s.append(noon)
	s.write(store.Write{Add: []store.Count{unitsOf("a", noon, 0, 1)}})
	for _, at := range []store.Instant{noon + 500, noon + 100} { // the latest reset stands, in any order
		s.write(store.Write{Reset: at, ResetTTL: time.Hour, Counts: true})
	}
	s.append(noon + 1000)
	log := []store.LogQuery{{Span: store.SpanHour, After: 0, Max: 10}}
	if got := s.read(store.Query{Logs: log}).Reset; got != noon+500 {
		t.Errorf("with the log: reset at noon%+d ms, want +500", got-noon)
	}
	if got := s.read(store.Query{Counts: true}).Reset; got != noon+500 {
		t.Errorf("with the counters: reset at noon%+d ms, want +500", got-noon)
	}
}

// tally is the running total of a counter like count's, by a writer.
func tally(writer store.EventID, start, epoch store.Instant, units, stamp int64) store.Tally {
	t := store.Tally{Count: unitsOf("a", start, epoch, units), Stamp: int64(noon)*1000 + stamp, TTL: time.Hour}
	t.Row = writer
	return t
}

func (s *subject) put(tallies ...store.Tally) {
	s.t.Helper()
	s.write(store.Write{Put: tallies, Tally: true, Span: store.SpanDay})
}

func (s *subject) wantTallies(expireAfter store.Instant, want ...store.Tally) {
	s.t.Helper()
	var counts []store.Count
	for _, t := range want {
		counts = append(counts, t.Count)
	}
	got := s.read(store.Query{Tally: true, Span: store.SpanDay, ExpireAfter: expireAfter}).Counts
	byStart := func(a, b store.Count) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Epoch, b.Epoch), bytes.Compare(a.Row[:], b.Row[:]))
	}
	slices.SortFunc(got, byStart)
	slices.SortFunc(counts, byStart)
	if !slices.Equal(got, counts) {
		s.t.Errorf("totals are %+v, want %+v", got, counts)
	}
}

func testTalliesReplaceThemselves(t *testing.T, store store.Store) {
	s := newSubject(t, store)
	one, other := s.ids(noon), s.ids(noon)
	s.wantTallies(0)
	s.put(tally(one, noon, 0, 2, 1), tally(one, noon+60_000, 0, 1, 1))
	s.put(tally(other, noon, 0, 7, 1))
	s.put(tally(one, noon, 0, 5, 3))
	s.put(tally(one, noon, 0, 4, 2)) // arrives late
	s.put(tally(one, noon, noon+5, 9, 4))
	first, second := tally(one, noon, 0, 5, 3), tally(one, noon+60_000, 0, 1, 1)
	others, after := tally(other, noon, 0, 7, 1), tally(one, noon, noon+5, 9, 4)
	s.wantTallies(0, first, second, others, after)
	s.wantTallies(noon+119_999, first, second, others, after)
	s.wantTallies(noon+120_000, second)
	s.put(tally(one, noon, 0, -3, 9)) // units given back by another instance
	s.wantTallies(0, tally(one, noon, 0, -3, 9), second, others, after)
	s.wantCounts(0)
}

func testTalliesOfManyWriters(t *testing.T, in store.Store) {
	const writers, each = 8, 25
	s := newSubject(t, in)
	want := make([]store.Tally, writers)
	var all sync.WaitGroup
	for i := range writers {
		writer := s.ids(noon)
		want[i] = tally(writer, noon, 0, each, each)
		all.Go(func() {
			for n := range int64(each) {
				w := store.Write{Key: s.key, Level: policy.LevelQuorum, Tally: true, Span: store.SpanDay}
				w.Put = []store.Tally{tally(writer, noon, 0, n+1, n+1)}
				if err := in.Write(t.Context(), &w); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantTallies(0, want...)
}

func testResetIsReadWithTheTallies(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	s.put(tally(s.ids(noon), noon, noon+500, 1, 1))
	for _, at := range []store.Instant{noon + 500, noon + 100} { // the latest reset stands, in any order
		s.write(store.Write{Reset: at, ResetTTL: time.Hour, Tally: true, Span: store.SpanDay})
	}
	if got := s.read(store.Query{Tally: true, Span: store.SpanDay}).Reset; got != noon+500 {
		t.Errorf("reset at noon%+d ms, want +500", got-noon)
	}
}

// Concurrent writes and reads of many keys: each read returns the write just before it, and no data of other keys.
func testWriteThenRead(t *testing.T, in store.Store) {
	const keys, rounds = 60, 4
	logs := []store.LogQuery{{Span: store.SpanHour, Max: 10}}
	kept := []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 10}}
	var all sync.WaitGroup
	for key := range keys {
		s := newSubject(t, in)
		writer := s.ids(noon)
		all.Go(func() {
			for n := range store.Instant(rounds) {
				event := []store.Event{{ID: s.ids(noon + n), At: noon + n, Cost: 1}}
				w, q := store.Write{Events: event, Logs: kept}, store.Query{Logs: logs}
				switch key % 4 {
				case 1:
					total := tally(writer, noon, 0, int64(n+1), int64(n+1))
					w = store.Write{Put: []store.Tally{total}, Tally: true, Span: store.SpanDay}
					q = store.Query{Tally: true, Span: store.SpanDay}
				case 2:
					w, q = store.Write{Add: []store.Count{unitsOf("a", noon, 0, 1)}}, store.Query{Counts: true}
				case 3: // what is read is of another kind, too
					w.Add, q.Counts = []store.Count{unitsOf("a", noon, 0, 1)}, true
				}
				s.wantWritten(w, q, int64(n+1))
			}
		})
	}
	all.Wait()
}

// wantWritten stores w and then reads q, whose counts should have units each.
func (s *subject) wantWritten(w store.Write, q store.Query, units int64) {
	w.Key, w.Level = s.key, policy.LevelQuorum
	q.Key, q.Level = s.key, policy.LevelQuorum
	state, wrote, err := s.store.WriteThenRead(s.t.Context(), &w, &q)
	if err != nil || !wrote {
		s.t.Errorf("writing and reading: written %v, %v", wrote, err)
		return
	}
	for i := range state.Logs {
		if got := store.SumOf(state.Logs[i].Events); got != units {
			s.t.Errorf("%d units in a log, want %d", got, units)
		}
	}
	counts, counted := []int64{}, 0
	if q.Counts || q.Tally {
		counted = 1
	}
	for _, c := range state.Counts {
		counts = append(counts, c.Units)
	}
	if want := slices.Repeat([]int64{units}, counted); !slices.Equal(counts, want) || len(state.Logs) != len(q.Logs) {
		s.t.Errorf("%d logs and counts of %v, want %d and %v", len(state.Logs), counts, len(q.Logs), want)
	}
}

// testWriteEach writes events to some keys and units to others: each write is stored, and reported once.
func testWriteEach(t *testing.T, in store.Store) {
	const keys = 40
	subjects, writes := make([]*subject, keys), make([]store.Write, keys)
	for i := range writes {
		s := newSubject(t, in)
		subjects[i], writes[i] = s, store.Write{Key: s.key, Level: policy.LevelQuorum, Add: []store.Count{unitsOf("a", noon, 0, 1)}}
		if i%2 == 0 {
			writes[i].Add, writes[i].Events = nil, []store.Event{{ID: s.ids(noon), At: noon, Cost: 1}}
			writes[i].Logs = []store.LogWrite{{Span: store.SpanHour, TTL: time.Hour, Keep: 10}}
		}
	}
	var mu sync.Mutex
	reported := make(map[int]int)
	in.WriteEach(t.Context(), writes, func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		if reported[i]++; err != nil {
			t.Errorf("write %d: %v", i, err)
		}
	})
	for i, s := range subjects {
		state := s.read(store.Query{Counts: true, Logs: []store.LogQuery{{Span: store.SpanHour, Max: 10}}, ExpireAfter: noon})
		if n := len(state.Counts) + len(state.Logs[0].Events); n != 1 || reported[i] != 1 {
			t.Errorf("write %d is stored %d times and reported %d times", i, n, reported[i])
		}
	}
}
