package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter/policy"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// wholeLog asks for more events than these tests put beside a cell or into a log.
var wholeLog = []store.LogQuery{{Span: store.SpanMonth, Max: 1000}}

// cell returns the subject's cell and the log beside it.
func (s *subject) cell() store.State {
	s.t.Helper()
	return s.read(store.Query{Cell: true, Logs: wholeLog})
}

// swap makes a conditional write of a cell with this value, and returns its version.
func (s *subject) swap(expected store.EventID, value string, w store.Write) (store.EventID, error) {
	w.Cell = &store.CellWrite{If: expected, Version: s.ids(noon), Value: []byte(value), TTL: time.Hour, Serial: policy.LevelSerial}
	return w.Cell.Version, s.try(&w)
}

// try makes a conditional write.
func (s *subject) try(w *store.Write) error {
	w.Key, w.Level = s.key, policy.LevelQuorum
	w.Logs = []store.LogWrite{{Span: store.SpanMonth, TTL: time.Hour, Keep: 1000}}
	return s.store.Write(s.t.Context(), w)
}

// mustSwap is swap for a test without other writers.
func (s *subject) mustSwap(expected store.EventID, value string, w store.Write) store.EventID {
	s.t.Helper()
	version, err := s.swap(expected, value, w)
	if err != nil {
		s.t.Fatal(err)
	}
	return version
}

func (s *subject) wantConflict(expected store.EventID, w store.Write) {
	s.t.Helper()
	if _, err := s.swap(expected, "of a loser", w); !errors.Is(err, store.ErrConflict) {
		s.t.Errorf("expecting version %v: %v, want a conflict", expected, err)
	}
}

func (s *subject) wantCell(version store.EventID, value string) {
	s.t.Helper()
	for _, level := range []policy.Level{policy.LevelQuorum, policy.LevelLocalQuorum, policy.LevelSerial, policy.LevelLocalSerial} {
		state, err := s.store.Read(s.t.Context(), &store.Query{Key: s.key, Level: level, Cell: true})
		if err != nil {
			s.t.Fatal(err)
		}
		if got := state.Cell; got.Version != version || !bytes.Equal(got.Value, []byte(value)) {
			s.t.Errorf("at %s: the cell has version %v and value %q, want %v, %q", level, got.Version, got.Value, version, value)
		}
	}
}

func testCellChangesOnItsCondition(t *testing.T, in store.Store) {
	s, never := newSubject(t, in), store.EventID{}
	s.wantCell(never, "")
	s.wantConflict(s.ids(noon), store.Write{}) // there is none yet
	first := s.mustSwap(never, "a", store.Write{})
	s.wantCell(first, "a")
	s.wantConflict(never, store.Write{}) // there is one
	s.wantConflict(s.ids(noon), store.Write{})
	s.wantCell(first, "a")
	second := s.mustSwap(first, "b", store.Write{})
	s.wantCell(second, "b")
	s.wantConflict(first, store.Write{})
	s.wantCell(second, "b")
}

func testCellRemoved(t *testing.T, in store.Store) {
	s, never := newSubject(t, in), store.EventID{}
	remove := func(expected store.EventID) error {
		return s.try(&store.Write{Cell: &store.CellWrite{If: expected, Serial: policy.LevelSerial}})
	}
	version := s.mustSwap(never, "a", store.Write{})
	for _, wrong := range []store.EventID{never, s.ids(noon)} {
		if err := remove(wrong); !errors.Is(err, store.ErrConflict) {
			t.Errorf("expecting version %v: %v, want a conflict", wrong, err)
		}
	}
	s.wantCell(version, "a")
	if err := remove(version); err != nil {
		t.Fatal(err)
	}
	s.wantCell(never, "")
	s.wantConflict(version, store.Write{})
	s.wantCell(s.mustSwap(never, "b", store.Write{}), "b")
}

func testEventsBesideACell(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	var events []store.Event
	for i := range 3 {
		at := noon + store.Instant(i)*1000
		events = append(events, store.Event{ID: s.ids(at), At: at, Cost: int64(i + 1)})
	}
	events[2].Ends = noon + 60_000
	want := func(want ...store.Event) {
		t.Helper()
		if got := s.cell().Logs[0].Events; !slices.Equal(got, want) {
			t.Errorf("beside the cell are %+v, want %+v", got, want)
		}
	}
	version := s.mustSwap(store.EventID{}, "a", store.Write{Events: events[:2]})
	want(events[:2]...)
	s.wantConflict(store.EventID{}, store.Write{Events: events[2:], Remove: []store.EventID{events[0].ID}})
	s.wantConflict(s.ids(noon), store.Write{Events: events[2:], Remove: []store.EventID{events[0].ID}})
	want(events[:2]...)
	version = s.mustSwap(version, "b", store.Write{Events: events[2:], Remove: []store.EventID{events[0].ID}})
	want(events[1], events[2])
	for _, of := range []struct {
		after store.Instant
		most  int
		want  []store.Event
	}{
		{0, 1, events[2:]},
		{noon + 1000, 10, events[2:]},
		{noon + 2000, 10, nil},
		{noon + 2000, 1, nil},
	} {
		q := store.Query{Cell: true, Logs: []store.LogQuery{{Span: store.SpanMonth, After: of.after, Max: of.most}}, ExpireAfter: noon}
		state := s.read(q)
		got := slices.DeleteFunc(state.Logs[0].Events, func(e store.Event) bool { return e.ID == events[1].ID && of.most == 1 })
		if !slices.Equal(got, of.want) || state.Cell.Version != version || string(state.Cell.Value) != "b" {
			t.Errorf("the newest %d after noon%+d ms are %+v beside %+v", of.most, of.after-noon, got, state.Cell)
		}
	}
	settled := events[2]
	settled.Ends = 0
	s.mustSwap(version, "c", store.Write{Events: []store.Event{settled}, Settle: true})
	want(events[1], settled)
}

func testCellExpires(t *testing.T, in store.Store) {
	const patience = 30 * time.Second
	s, kept := newSubject(t, in), newSubject(t, in)
	w := store.Write{Cell: &store.CellWrite{Version: s.ids(noon), Value: []byte("a"), TTL: time.Second, Serial: policy.LevelSerial}}
	if err := s.try(&w); err != nil {
		t.Fatal(err)
	}
	w.Cell.TTL = 0 // for ever
	if err := kept.try(&w); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); s.cell().Cell.Version != (store.EventID{}); <-tick.C {
		if time.Since(start) > patience {
			t.Fatalf("a cell to be kept for a second is there after %v", patience)
		}
	}
	s.wantCell(s.mustSwap(store.EventID{}, "b", store.Write{}), "b")
	kept.wantCell(w.Cell.Version, "a")
}

// testCellWrittenByMany makes many writers add their versions to a cell's history, and events beside it. In every
// interleaving, acknowledged writes are stored once, refused ones are not stored, and a concurrent read returns the
// same history by events and by the cell.
func testCellWrittenByMany(t *testing.T, in store.Store) {
	const writers, each = 4, 5
	s := newSubject(t, in)
	var mu sync.Mutex
	fates := make(map[store.EventID]error) // of every attempt
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for done := 0; done < each && t.Context().Err() == nil; {
				id, err := s.addVersion(t.Context())
				if err == nil {
					done++
				}
				mu.Lock()
				fates[id] = err
				mu.Unlock()
			}
		})
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	s.readAlong(&readers, done)
	all.Wait()
	close(done)
	readers.Wait()
	state, err := in.Read(t.Context(), &store.Query{Key: s.key, Level: policy.LevelSerial, Cell: true, Logs: wholeLog})
	if err != nil {
		t.Fatal(err)
	}
	var beside []store.EventID
	for _, e := range state.Logs[0].Events {
		beside = append(beside, e.ID)
	}
	checkFates(t, fates, versionsIn(state.Cell.Value), beside)
}

// readAlong makes readers compare the cell and its log until done is closed: one reads few rows at a time, and one
// many.
func (s *subject) readAlong(readers *sync.WaitGroup, done <-chan struct{}) {
	for _, most := range []int{50, 1000} { // rows: more than there are
		readers.Go(func() {
			q := store.Query{Key: s.key, Level: policy.LevelQuorum, Cell: true, Logs: []store.LogQuery{{Span: store.SpanMonth, Max: most}}}
			for !s.t.Failed() {
				select {
				case <-done:
					return
				default:
				}
				state, err := s.store.Read(s.t.Context(), &q)
				if err != nil {
					s.t.Error(err)
					return
				}
				s.wantInStep(&state)
			}
		})
	}
}

// wantInStep compares the versions in a cell to the events beside it.
func (s *subject) wantInStep(state *store.State) {
	versions, last := versionsIn(state.Cell.Value), store.EventID{}
	if len(versions) > 0 {
		last = versions[len(versions)-1]
	}
	if state.Cell.Version != last || len(state.Logs[0].Events) != len(versions) {
		s.t.Errorf("a cell of version %v tells of %d versions, the last of which is %v, beside %d events",
			state.Cell.Version, len(versions), last, len(state.Logs[0].Events))
	}
}

// addVersion reads the cell and writes it with one more version and event, once.
func (s *subject) addVersion(ctx context.Context) (store.EventID, error) {
	id := s.ids(noon)
	state, err := s.store.Read(ctx, &store.Query{Key: s.key, Level: policy.LevelQuorum, Cell: true})
	if err != nil {
		return id, errors.Join(store.ErrConflict, err)
	}
	return id, s.try(&store.Write{
		Cell: &store.CellWrite{
			If: state.Cell.Version, Version: id, Value: append(slices.Clone(state.Cell.Value), id[:]...),
			TTL: time.Hour, Serial: policy.LevelSerial,
		},
		Events: []store.Event{{ID: id, At: noon, Cost: 1}},
	})
}

func versionsIn(value []byte) (versions []store.EventID) {
	for id := range slices.Chunk(value, len(store.EventID{})) {
		versions = append(versions, store.EventID(id))
	}
	return versions
}

// checkFates compares the outcomes that writers got for their versions to the cell and the events beside it.
func checkFates(t *testing.T, fates map[store.EventID]error, stored, beside []store.EventID) {
	t.Helper()
	times := make(map[store.EventID]int)
	for _, id := range stored {
		times[id]++
	}
	unknown := 0
	for id, err := range fates {
		there := slices.Contains(beside, id)
		switch {
		case there != (times[id] == 1):
			t.Errorf("version %v is stored %d times, its event is there: %v", id, times[id], there)
		case err == nil && !there:
			t.Errorf("version %v was acknowledged and is not stored", id)
		case errors.Is(err, store.ErrConflict) && there:
			t.Errorf("version %v was refused and is stored", id)
		case err != nil && !errors.Is(err, store.ErrConflict):
			unknown++
		}
	}
	t.Logf("%d attempts, %d stored, %d without an answer", len(fates), len(stored), unknown)
}

// testEndedHoldsHideNothing puts later holds, which have ended, in the places of all events that a reader asks for, in
// a log and beside a cell.
func testEndedHoldsHideNothing(t *testing.T, in store.Store) {
	s, beside := newSubject(t, in), newSubject(t, in)
	var events []store.Event
	for i := range store.Instant(20) {
		at := noon + i
		e := store.Event{ID: s.ids(at), At: at, Cost: 1}
		if i >= 3 {
			e.Ends = at + 1000
		}
		events = append(events, e)
	}
	s.write(store.Write{Events: events})
	beside.mustSwap(store.EventID{}, "a", store.Write{Events: events})
	for name, state := range map[string]store.State{
		"log":  s.read(store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, Max: 3}}, ExpireAfter: noon + 5000}),
		"cell": beside.read(store.Query{Cell: true, Logs: []store.LogQuery{{Span: store.SpanMonth, Max: 3}}, ExpireAfter: noon + 5000}),
	} {
		got := slices.DeleteFunc(state.Logs[0].Events, func(e store.Event) bool { return e.Ends != 0 })
		if !slices.Equal(got, events[:3]) {
			t.Errorf("%s: of the newest 3 that count %+v were read, want %+v", name, got, events[:3])
		}
	}
}
