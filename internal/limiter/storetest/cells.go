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

// swap makes a conditional write of a cell with this value, and returns its version.
func (s *subject) swap(expected store.EventID, value string) (store.EventID, error) {
	cell := store.CellWrite{If: expected, Version: s.ids(noon), Value: []byte(value), TTL: time.Hour, Serial: policy.LevelSerial}
	return cell.Version, s.try(&store.Write{Cell: &cell})
}

// try makes a conditional write.
func (s *subject) try(w *store.Write) error {
	w.Key, w.Level = s.key, policy.LevelQuorum
	return s.store.Write(s.t.Context(), w)
}

// mustSwap is swap for a test without other writers.
func (s *subject) mustSwap(expected store.EventID, value string) store.EventID {
	s.t.Helper()
	version, err := s.swap(expected, value)
	if err != nil {
		s.t.Fatal(err)
	}
	return version
}

func (s *subject) wantConflict(expected store.EventID) {
	s.t.Helper()
	if _, err := s.swap(expected, "of a loser"); !errors.Is(err, store.ErrConflict) {
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
	s.wantConflict(s.ids(noon)) // no cell exists yet
	first := s.mustSwap(never, "a")
	s.wantCell(first, "a")
	s.wantConflict(never) // a cell exists
	s.wantConflict(s.ids(noon))
	s.wantCell(first, "a")
	second := s.mustSwap(first, "b")
	s.wantCell(second, "b")
	s.wantConflict(first)
	s.wantCell(second, "b")
}

func testCellRemoved(t *testing.T, in store.Store) {
	s, never := newSubject(t, in), store.EventID{}
	remove := func(expected store.EventID) error {
		return s.try(&store.Write{Cell: &store.CellWrite{If: expected, Serial: policy.LevelSerial}})
	}
	version := s.mustSwap(never, "a")
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
	s.wantConflict(version)
	s.wantCell(s.mustSwap(never, "b"), "b")
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
	for start := time.Now(); s.read(store.Query{Cell: true}).Cell.Version != (store.EventID{}); <-tick.C {
		if time.Since(start) > patience {
			t.Fatalf("a cell with a time to live of a second still exists after %v", patience)
		}
	}
	s.wantCell(s.mustSwap(store.EventID{}, "b"), "b")
	kept.wantCell(w.Cell.Version, "a")
}

// testCellWrittenByMany lets many writers add their versions to a cell's history. In every interleaving, acknowledged
// writes are stored once, refused ones are not stored, and a concurrent read returns a history together with its latest
// version.
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
	var reader sync.WaitGroup
	reader.Go(func() { s.readUntil(done) })
	all.Wait()
	close(done)
	reader.Wait()
	state, err := in.Read(t.Context(), &store.Query{Key: s.key, Level: policy.LevelSerial, Cell: true})
	if err != nil {
		t.Fatal(err)
	}
	checkFates(t, fates, versionsIn(state.Cell.Value))
}

// readUntil compares the cell's version to the last one in its value until done is closed.
func (s *subject) readUntil(done <-chan struct{}) {
	for !s.t.Failed() {
		select {
		case <-done:
			return
		default:
		}
		state, err := s.store.Read(s.t.Context(), &store.Query{Key: s.key, Level: policy.LevelQuorum, Cell: true})
		if err != nil {
			s.t.Error(err)
			return
		}
		versions, last := versionsIn(state.Cell.Value), store.EventID{}
		if len(versions) > 0 {
			last = versions[len(versions)-1]
		}
		if state.Cell.Version != last {
			s.t.Errorf("a cell of version %v has a history of %d versions, the last of which is %v", state.Cell.Version, len(versions), last)
		}
	}
}

// addVersion reads the cell and writes it with one more version, once.
func (s *subject) addVersion(ctx context.Context) (store.EventID, error) {
	id := s.ids(noon)
	state, err := s.store.Read(ctx, &store.Query{Key: s.key, Level: policy.LevelQuorum, Cell: true})
	if err != nil {
		return id, errors.Join(store.ErrConflict, err)
	}
	return id, s.try(&store.Write{Cell: &store.CellWrite{
		If: state.Cell.Version, Version: id, Value: append(slices.Clone(state.Cell.Value), id[:]...),
		TTL: time.Hour, Serial: policy.LevelSerial,
	}})
}

func versionsIn(value []byte) (versions []store.EventID) {
	for id := range slices.Chunk(value, len(store.EventID{})) {
		versions = append(versions, store.EventID(id))
	}
	return versions
}

// checkFates compares the outcomes that writers got for their versions to those in the cell.
func checkFates(t *testing.T, fates map[store.EventID]error, stored []store.EventID) {
	t.Helper()
	times := make(map[store.EventID]int)
	for _, id := range stored {
		times[id]++
	}
	unknown := 0
	for id, err := range fates {
		switch n := times[id]; {
		case n > 1:
			t.Errorf("version %v is stored %d times", id, n)
		case err == nil && n == 0:
			t.Errorf("version %v was acknowledged and is not stored", id)
		case errors.Is(err, store.ErrConflict) && n > 0:
			t.Errorf("version %v was refused and is stored", id)
		case err != nil && !errors.Is(err, store.ErrConflict):
			unknown++
		}
	}
	t.Logf("%d attempts: %d stored, %d without an answer", len(fates), len(stored), unknown)
}

// testEndedHoldsHideNothing writes three events, and then more holds than a read returns, which have all ended.
func testEndedHoldsHideNothing(t *testing.T, in store.Store) {
	s := newSubject(t, in)
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
	state := s.read(store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, Max: 3}}, ExpireAfter: noon + 5000})
	got := slices.DeleteFunc(state.Logs[0].Events, func(e store.Event) bool { return e.Ends != 0 })
	if !slices.Equal(got, events[:3]) {
		t.Errorf("the newest 3 counted events are %+v, want %+v", got, events[:3])
	}
}
