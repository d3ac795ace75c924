package storetest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// subject is one key of the store under test, that no other test uses.
type subject struct {
	t     testing.TB
	store limiter.Store
	key   limiter.Key
	ids   func(limiter.Instant) limiter.EventID
}

func newSubject(t testing.TB, store limiter.Store) *subject {
	keyer := limiter.Keyer{Namespace: rand.Text()}
	return &subject{
		t: t, store: store,
		key: keyer.For(limiter.KeySpace{Policy: "contract"}).Of("somebody"),
		ids: limiter.NewEventIDs(),
	}
}

const noon limiter.Instant = 1_772_452_800_000 // 2026-03-02 12:00 UTC

// write stores w under the subject's key, into the log of an hour unless w says
// otherwise.
func (s *subject) write(w limiter.Write) {
	s.t.Helper()
	w.Key, w.Level = s.key, limiter.LevelQuorum
	if w.Logs == nil {
		w.Logs = []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 10_000}}
	}
	if err := s.store.Write(s.t.Context(), &w); err != nil {
		s.t.Fatal(err)
	}
}

// append stores events of cost 1, 2, … at these instants and returns their ids.
func (s *subject) append(at ...limiter.Instant) []limiter.EventID {
	s.t.Helper()
	var w limiter.Write
	var ids []limiter.EventID
	for i, instant := range at {
		ids = append(ids, s.ids(instant))
		w.Events = append(w.Events, limiter.Event{ID: ids[i], At: instant, Cost: int64(i + 1)})
	}
	s.write(w)
	return ids
}

func (s *subject) read(q limiter.Query) limiter.State {
	s.t.Helper()
	q.Key, q.Level = s.key, limiter.LevelQuorum
	state, err := s.store.Read(s.t.Context(), &q)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

// costs returns the costs of the newest n events of span later than after.
func (s *subject) costs(span limiter.Span, after limiter.Instant, n int) []int64 {
	s.t.Helper()
	state := s.read(limiter.Query{Logs: []limiter.LogQuery{{Span: span, After: after, Max: n}}})
	costs := []int64{}
	for _, e := range state.Logs[0].Events {
		costs = append(costs, e.Cost)
	}
	return costs
}

func (s *subject) wantCosts(after limiter.Instant, n int, want ...int64) {
	s.t.Helper()
	if got := s.costs(limiter.SpanHour, after, n); !slices.Equal(got, want) {
		s.t.Errorf("the newest %d after noon%+d ms cost %v, want %v", n, after-noon, got, want)
	}
}

func testEventsNewestOfThoseLater(t *testing.T, store limiter.Store) {
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

func testEventsOutOfOrder(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	s.append(noon+2000, noon, noon+1000)
	s.wantCosts(0, 10, 2, 3, 1)
	s.wantCosts(noon, 10, 3, 1)
}

func testEventsOfOneMillisecond(t *testing.T, store limiter.Store) {
	const n = 1000
	s := newSubject(t, store)
	for range n / 50 {
		s.append(slices.Repeat([]limiter.Instant{noon}, 50)...)
	}
	state := s.read(limiter.Query{Logs: []limiter.LogQuery{{Span: limiter.SpanHour, After: noon - 1, Max: 2 * n}}})
	if got := len(state.Logs[0].Events); got != n {
		t.Errorf("%d rows of %d events", got, n)
	}
	for _, e := range state.Logs[0].Events {
		if e.At != noon {
			t.Fatalf("an event at noon%+d ms", e.At-noon)
		}
	}
}

func testEventsRemoved(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	ids := s.append(noon, noon, noon+1)
	for range 2 { // safe to repeat
		s.write(limiter.Write{Remove: ids[1:2]})
		s.wantCosts(0, 10, 1, 3)
	}
	s.write(limiter.Write{Remove: []limiter.EventID{ids[0], ids[2]}})
	s.wantCosts(0, 10)
}

func testSpansAreApart(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	event := limiter.Event{ID: s.ids(noon), At: noon, Cost: 7}
	for _, span := range []limiter.Span{limiter.SpanDay, limiter.SpanMonth} {
		s.write(limiter.Write{Events: []limiter.Event{event}, Logs: []limiter.LogWrite{{Span: span, TTL: time.Hour, Keep: 10}}})
	}
	for span, want := range [limiter.SpanCount]int{0, 1, 1} {
		if got := s.costs(limiter.Span(span), 0, 10); len(got) != want {
			t.Errorf("span %d: %v", span, got)
		}
	}
}

// count is a counter of a limit whose window starts at start; it expires
// two minutes later, as a sliding tail's of a minute does.
func count(limit limiter.LimitID, start, epoch limiter.Instant, units int64) limiter.Count {
	return limiter.Count{Limit: limit, Start: start, Expires: start + 120_000, Epoch: epoch, Units: units}
}

func (s *subject) wantCounts(expireAfter limiter.Instant, want ...limiter.Count) {
	s.t.Helper()
	got := s.read(limiter.Query{Counts: true, ExpireAfter: expireAfter}).Counts
	byStart := func(a, b limiter.Count) int {
		return int(a.Start-b.Start)*10 + int(a.Epoch-b.Epoch) + len(a.Limit) - len(b.Limit)
	}
	slices.SortFunc(got, byStart)
	slices.SortFunc(want, byStart)
	if !slices.Equal(got, want) {
		s.t.Errorf("counts are %+v, want %+v", got, want)
	}
}

func testCountersAddUp(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	s.wantCounts(0)
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon, 0, 2), count("long", noon, 0, 1)}})
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon, 0, 3)}})
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon, 0, -1)}})
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon+60_000, 0, 1)}})
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon, noon+5, 9)}})
	first, long, second, after := count("a", noon, 0, 4), count("long", noon, 0, 1), count("a", noon+60_000, 0, 1), count("a", noon, noon+5, 9)
	s.wantCounts(0, first, long, second, after)
	s.wantCounts(noon+119_999, first, long, second, after)
	s.wantCounts(noon+120_000, second)
}

func testCountersAtTheSameTime(t *testing.T, store limiter.Store) {
	const writers, each = 8, 25
	s := newSubject(t, store)
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				w := limiter.Write{Key: s.key, Level: limiter.LevelQuorum, Add: []limiter.Count{count("a", noon, 0, 1)}}
				if err := store.Write(t.Context(), &w); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantCounts(0, count("a", noon, 0, writers*each))
}

func testResetIsReadWithTheCount(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	s.append(noon)
	s.write(limiter.Write{Add: []limiter.Count{count("a", noon, 0, 1)}})
	for _, at := range []limiter.Instant{noon + 500, noon + 100} { // the latest stands, whatever the order
		s.write(limiter.Write{Reset: at, ResetTTL: time.Hour, Counts: true})
	}
	s.append(noon + 1000)
	log := []limiter.LogQuery{{Span: limiter.SpanHour, After: 0, Max: 10}}
	if got := s.read(limiter.Query{Logs: log}).Reset; got != noon+500 {
		t.Errorf("with the log: reset at noon%+d ms, want +500", got-noon)
	}
	if got := s.read(limiter.Query{Counts: true}).Reset; got != noon+500 {
		t.Errorf("with the counters: reset at noon%+d ms, want +500", got-noon)
	}
}

// tally is the running total of a counter like count's, by a writer.
func tally(writer limiter.EventID, start, epoch limiter.Instant, units, stamp int64) limiter.Tally {
	t := limiter.Tally{Count: count("a", start, epoch, units), Stamp: int64(noon)*1000 + stamp, TTL: time.Hour}
	t.Row = writer
	return t
}

func (s *subject) put(tallies ...limiter.Tally) {
	s.t.Helper()
	s.write(limiter.Write{Put: tallies, Tally: true, Span: limiter.SpanDay})
}

func (s *subject) wantTallies(expireAfter limiter.Instant, want ...limiter.Tally) {
	s.t.Helper()
	var counts []limiter.Count
	for _, t := range want {
		counts = append(counts, t.Count)
	}
	got := s.read(limiter.Query{Tally: true, Span: limiter.SpanDay, ExpireAfter: expireAfter}).Counts
	byStart := func(a, b limiter.Count) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Epoch, b.Epoch), bytes.Compare(a.Row[:], b.Row[:]))
	}
	slices.SortFunc(got, byStart)
	slices.SortFunc(counts, byStart)
	if !slices.Equal(got, counts) {
		s.t.Errorf("totals are %+v, want %+v", got, counts)
	}
}

func testTalliesReplaceThemselves(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	one, other := s.ids(noon), s.ids(noon)
	s.wantTallies(0)
	s.put(tally(one, noon, 0, 2, 1), tally(one, noon+60_000, 0, 1, 1))
	s.put(tally(other, noon, 0, 7, 1))
	s.put(tally(one, noon, 0, 5, 3))
	s.put(tally(one, noon, 0, 4, 2)) // comes late
	s.put(tally(one, noon, noon+5, 9, 4))
	first, second := tally(one, noon, 0, 5, 3), tally(one, noon+60_000, 0, 1, 1)
	others, after := tally(other, noon, 0, 7, 1), tally(one, noon, noon+5, 9, 4)
	s.wantTallies(0, first, second, others, after)
	s.wantTallies(noon+119_999, first, second, others, after)
	s.wantTallies(noon+120_000, second)
	s.put(tally(one, noon, 0, -3, 9)) // what was given back elsewhere
	s.wantTallies(0, tally(one, noon, 0, -3, 9), second, others, after)
	s.wantCounts(0)
}

func testTalliesOfManyWriters(t *testing.T, store limiter.Store) {
	const writers, each = 8, 25
	s := newSubject(t, store)
	want := make([]limiter.Tally, writers)
	var all sync.WaitGroup
	for i := range writers {
		writer := s.ids(noon)
		want[i] = tally(writer, noon, 0, each, each)
		all.Go(func() {
			for n := range int64(each) {
				w := limiter.Write{Key: s.key, Level: limiter.LevelQuorum, Tally: true, Span: limiter.SpanDay}
				w.Put = []limiter.Tally{tally(writer, noon, 0, n+1, n+1)}
				if err := store.Write(t.Context(), &w); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.wantTallies(0, want...)
}

func testResetIsReadWithTheTallies(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	s.put(tally(s.ids(noon), noon, noon+500, 1, 1))
	for _, at := range []limiter.Instant{noon + 500, noon + 100} { // the latest stands, whatever the order
		s.write(limiter.Write{Reset: at, ResetTTL: time.Hour, Tally: true, Span: limiter.SpanDay})
	}
	if got := s.read(limiter.Query{Tally: true, Span: limiter.SpanDay}).Reset; got != noon+500 {
		t.Errorf("reset at noon%+d ms, want +500", got-noon)
	}
}

// Of many keys at the same time, each reads what was just written to it, and nothing of the
// others, whatever it is.
func testWriteThenRead(t *testing.T, store limiter.Store) {
	const keys, rounds = 60, 4
	logs := []limiter.LogQuery{{Span: limiter.SpanHour, Max: 10}}
	kept := []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 10}}
	var all sync.WaitGroup
	for key := range keys {
		s := newSubject(t, store)
		writer := s.ids(noon)
		all.Go(func() {
			for n := range limiter.Instant(rounds) {
				event := []limiter.Event{{ID: s.ids(noon + n), At: noon + n, Cost: 1}}
				w, q := limiter.Write{Events: event, Logs: kept}, limiter.Query{Logs: logs}
				switch key % 4 {
				case 1:
					total := tally(writer, noon, 0, int64(n+1), int64(n+1))
					w = limiter.Write{Put: []limiter.Tally{total}, Tally: true, Span: limiter.SpanDay}
					q = limiter.Query{Tally: true, Span: limiter.SpanDay}
				case 2:
					w, q = limiter.Write{Add: []limiter.Count{count("a", noon, 0, 1)}}, limiter.Query{Counts: true}
				case 3: // what is read is of another kind, too
					w.Add, q.Counts = []limiter.Count{count("a", noon, 0, 1)}, true
				}
				s.wantWritten(w, q, int64(n+1))
			}
		})
	}
	all.Wait()
}

// wantWritten stores w and reads what q asks for then, which should be units of each.
func (s *subject) wantWritten(w limiter.Write, q limiter.Query, units int64) {
	w.Key, w.Level = s.key, limiter.LevelQuorum
	q.Key, q.Level = s.key, limiter.LevelQuorum
	state, wrote, err := limiter.WriteThenRead(s.t.Context(), s.store, &w, &q)
	if err != nil || !wrote {
		s.t.Errorf("written: %v; %v", wrote, err)
		return
	}
	for i := range state.Logs {
		if got := limiter.SumOf(state.Logs[i].Events); got != units {
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
