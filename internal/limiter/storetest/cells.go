package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

// wholeLog asks for more than these tests put beside a cell or into a log.
var wholeLog = []limiter.LogQuery{{Span: limiter.SpanMonth, Max: 1000}}

// cell returns the subject's cell and the log beside it.
func (s *subject) cell() limiter.State {
	s.t.Helper()
	return s.read(limiter.Query{Cell: true, Logs: wholeLog})
}

// swap makes a conditional write of a cell with this value, and returns its version.
func (s *subject) swap(expected limiter.EventID, value string, w limiter.Write) (limiter.EventID, error) {
	w.Cell = &limiter.CellWrite{If: expected, Version: s.ids(noon), Value: []byte(value), TTL: time.Hour, Serial: limiter.LevelSerial}
	return w.Cell.Version, s.try(&w)
}

// try makes a conditional write.
func (s *subject) try(w *limiter.Write) error {
	w.Key, w.Level = s.key, limiter.LevelQuorum
	w.Logs = []limiter.LogWrite{{Span: limiter.SpanMonth, TTL: time.Hour, Keep: 1000}}
	return s.store.Write(s.t.Context(), w)
}

// mustSwap is swap where nobody else writes.
func (s *subject) mustSwap(expected limiter.EventID, value string, w limiter.Write) limiter.EventID {
	s.t.Helper()
	version, err := s.swap(expected, value, w)
	if err != nil {
		s.t.Fatal(err)
	}
	return version
}

func (s *subject) wantConflict(expected limiter.EventID, w limiter.Write) {
	s.t.Helper()
	if _, err := s.swap(expected, "of a loser", w); !errors.Is(err, limiter.ErrConflict) {
		s.t.Errorf("expecting version %v: %v, want a conflict", expected, err)
	}
}

func (s *subject) wantCell(version limiter.EventID, value string) {
	s.t.Helper()
	for _, level := range []limiter.Level{limiter.LevelQuorum, limiter.LevelLocalQuorum, limiter.LevelSerial, limiter.LevelLocalSerial} {
		state, err := s.store.Read(s.t.Context(), &limiter.Query{Key: s.key, Level: level, Cell: true})
		if err != nil {
			s.t.Fatal(err)
		}
		if got := state.Cell; got.Version != version || !bytes.Equal(got.Value, []byte(value)) {
			s.t.Errorf("at %s: the cell has version %v and value %q, want %v, %q", level, got.Version, got.Value, version, value)
		}
	}
}

func testCellChangesOnItsCondition(t *testing.T, store limiter.Store) {
	s, never := newSubject(t, store), limiter.EventID{}
	s.wantCell(never, "")
	s.wantConflict(s.ids(noon), limiter.Write{}) // there is none yet
	first := s.mustSwap(never, "a", limiter.Write{})
	s.wantCell(first, "a")
	s.wantConflict(never, limiter.Write{}) // there is one
	s.wantConflict(s.ids(noon), limiter.Write{})
	s.wantCell(first, "a")
	second := s.mustSwap(first, "b", limiter.Write{})
	s.wantCell(second, "b")
	s.wantConflict(first, limiter.Write{})
	s.wantCell(second, "b")
}

func testCellRemoved(t *testing.T, store limiter.Store) {
	s, never := newSubject(t, store), limiter.EventID{}
	remove := func(expected limiter.EventID) error {
		return s.try(&limiter.Write{Cell: &limiter.CellWrite{If: expected, Serial: limiter.LevelSerial}})
	}
	version := s.mustSwap(never, "a", limiter.Write{})
	for _, wrong := range []limiter.EventID{never, s.ids(noon)} {
		if err := remove(wrong); !errors.Is(err, limiter.ErrConflict) {
			t.Errorf("expecting version %v: %v, want a conflict", wrong, err)
		}
	}
	s.wantCell(version, "a")
	if err := remove(version); err != nil {
		t.Fatal(err)
	}
	s.wantCell(never, "")
	s.wantConflict(version, limiter.Write{})
	s.wantCell(s.mustSwap(never, "b", limiter.Write{}), "b")
}

func testEventsBesideACell(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	var events []limiter.Event
	for i := range 3 {
		at := noon + limiter.Instant(i)*1000
		events = append(events, limiter.Event{ID: s.ids(at), At: at, Cost: int64(i + 1)})
	}
	events[2].Ends = noon + 60_000
	want := func(want ...limiter.Event) {
		t.Helper()
		if got := s.cell().Logs[0].Events; !slices.Equal(got, want) {
			t.Errorf("beside the cell are %+v, want %+v", got, want)
		}
	}
	version := s.mustSwap(limiter.EventID{}, "a", limiter.Write{Events: events[:2]})
	want(events[:2]...)
	s.wantConflict(limiter.EventID{}, limiter.Write{Events: events[2:], Remove: []limiter.EventID{events[0].ID}})
	s.wantConflict(s.ids(noon), limiter.Write{Events: events[2:], Remove: []limiter.EventID{events[0].ID}})
	want(events[:2]...)
	version = s.mustSwap(version, "b", limiter.Write{Events: events[2:], Remove: []limiter.EventID{events[0].ID}})
	want(events[1], events[2])
	for _, of := range []struct {
		after limiter.Instant
		most  int
		want  []limiter.Event
	}{
		{0, 1, events[2:]},
		{noon + 1000, 10, events[2:]},
		{noon + 2000, 10, nil},
		{noon + 2000, 1, nil},
	} {
		q := limiter.Query{Cell: true, Logs: []limiter.LogQuery{{Span: limiter.SpanMonth, After: of.after, Max: of.most}}, ExpireAfter: noon}
		state := s.read(q)
		got := slices.DeleteFunc(state.Logs[0].Events, func(e limiter.Event) bool { return e.ID == events[1].ID && of.most == 1 })
		if !slices.Equal(got, of.want) || state.Cell.Version != version || string(state.Cell.Value) != "b" {
			t.Errorf("the newest %d after noon%+d ms are %+v beside %+v", of.most, of.after-noon, got, state.Cell)
		}
	}
	settled := events[2]
	settled.Ends = 0
	s.mustSwap(version, "c", limiter.Write{Events: []limiter.Event{settled}, Settle: true})
	want(events[1], settled)
}

func testCellExpires(t *testing.T, store limiter.Store) {
	const patience = 30 * time.Second
	s, kept := newSubject(t, store), newSubject(t, store)
	w := limiter.Write{Cell: &limiter.CellWrite{Version: s.ids(noon), Value: []byte("a"), TTL: time.Second, Serial: limiter.LevelSerial}}
	if err := s.try(&w); err != nil {
		t.Fatal(err)
	}
	w.Cell.TTL = 0 // for ever
	if err := kept.try(&w); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); s.cell().Cell.Version != (limiter.EventID{}); <-tick.C {
		if time.Since(start) > patience {
			t.Fatalf("a cell to be kept for a second is there after %v", patience)
		}
	}
	s.wantCell(s.mustSwap(limiter.EventID{}, "b", limiter.Write{}), "b")
	kept.wantCell(w.Cell.Version, "a")
}

// testCellWrittenByMany has many writers add their version to what a cell says of its
// past, and an event beside it. However they meet: what was acknowledged is there once,
// what was refused is not, and whoever reads meanwhile is told the same by events and
// cell.
func testCellWrittenByMany(t *testing.T, store limiter.Store) {
	const writers, each = 4, 5
	s := newSubject(t, store)
	var mu sync.Mutex
	fates := make(map[limiter.EventID]error) // of every attempt
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
	state, err := store.Read(t.Context(), &limiter.Query{Key: s.key, Level: limiter.LevelSerial, Cell: true, Logs: wholeLog})
	if err != nil {
		t.Fatal(err)
	}
	var beside []limiter.EventID
	for _, e := range state.Logs[0].Events {
		beside = append(beside, e.ID)
	}
	checkFates(t, fates, versionsIn(state.Cell.Value), beside)
}

// readAlong has readers compare the cell and its log until done is closed: one that
// reads few rows at a time, and one that reads many.
func (s *subject) readAlong(readers *sync.WaitGroup, done <-chan struct{}) {
	for _, most := range []int{50, 1000} { // rows: more than there are
		readers.Go(func() {
			q := limiter.Query{Key: s.key, Level: limiter.LevelQuorum, Cell: true, Logs: []limiter.LogQuery{{Span: limiter.SpanMonth, Max: most}}}
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

// wantInStep compares what a cell says of its versions to the events beside it.
func (s *subject) wantInStep(state *limiter.State) {
	versions, last := versionsIn(state.Cell.Value), limiter.EventID{}
	if len(versions) > 0 {
		last = versions[len(versions)-1]
	}
	if state.Cell.Version != last || len(state.Logs[0].Events) != len(versions) {
		s.t.Errorf("a cell of version %v tells of %d versions, the last of which is %v, beside %d events",
			state.Cell.Version, len(versions), last, len(state.Logs[0].Events))
	}
}

// addVersion reads the cell and writes it with one more version and event, once.
func (s *subject) addVersion(ctx context.Context) (limiter.EventID, error) {
	id := s.ids(noon)
	state, err := s.store.Read(ctx, &limiter.Query{Key: s.key, Level: limiter.LevelQuorum, Cell: true})
	if err != nil {
		return id, errors.Join(limiter.ErrConflict, err)
	}
	return id, s.try(&limiter.Write{
		Cell: &limiter.CellWrite{
			If: state.Cell.Version, Version: id, Value: append(slices.Clone(state.Cell.Value), id[:]...),
			TTL: time.Hour, Serial: limiter.LevelSerial,
		},
		Events: []limiter.Event{{ID: id, At: noon, Cost: 1}},
	})
}

func versionsIn(value []byte) (versions []limiter.EventID) {
	for id := range slices.Chunk(value, len(limiter.EventID{})) {
		versions = append(versions, limiter.EventID(id))
	}
	return versions
}

// checkFates compares what writers were told of their versions to what is stored in
// the cell and beside it.
func checkFates(t *testing.T, fates map[limiter.EventID]error, stored, beside []limiter.EventID) {
	t.Helper()
	times := make(map[limiter.EventID]int)
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
		case errors.Is(err, limiter.ErrConflict) && there:
			t.Errorf("version %v was refused and is stored", id)
		case err != nil && !errors.Is(err, limiter.ErrConflict):
			unknown++
		}
	}
	t.Logf("%d attempts, %d stored, %d without an answer", len(fates), len(stored), unknown)
}

// testEndedHoldsHideNothing has younger holds, which have ended, take the places of all
// the events that a reader asks for, in a log and beside a cell.
func testEndedHoldsHideNothing(t *testing.T, store limiter.Store) {
	s, beside := newSubject(t, store), newSubject(t, store)
	var events []limiter.Event
	for i := range limiter.Instant(20) {
		at := noon + i
		e := limiter.Event{ID: s.ids(at), At: at, Cost: 1}
		if i >= 3 {
			e.Ends = at + 1000
		}
		events = append(events, e)
	}
	s.write(limiter.Write{Events: events})
	beside.mustSwap(limiter.EventID{}, "a", limiter.Write{Events: events})
	for name, state := range map[string]limiter.State{
		"log":  s.read(limiter.Query{Logs: []limiter.LogQuery{{Span: limiter.SpanHour, Max: 3}}, ExpireAfter: noon + 5000}),
		"cell": beside.read(limiter.Query{Cell: true, Logs: []limiter.LogQuery{{Span: limiter.SpanMonth, Max: 3}}, ExpireAfter: noon + 5000}),
	} {
		got := slices.DeleteFunc(state.Logs[0].Events, func(e limiter.Event) bool { return e.Ends != 0 })
		if !slices.Equal(got, events[:3]) {
			t.Errorf("%s: of the newest 3 that count %+v were read, want %+v", name, got, events[:3])
		}
	}
}
