package embedded_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// journal is one key's log of an hour, in a store whose clock the test turns.
type journal struct {
	t     *testing.T
	store *embedded.Store
	key   store.Key
	ids   func(store.Instant) store.EventID
	now   store.Instant
}

const kept = 3 // events that an update needs

func newJournal(t *testing.T) *journal {
	j := &journal{t: t, key: keysOf(1, true)[0], ids: store.NewEventIDs().Next, now: start}
	j.store = embedded.New(&embedded.Options{Now: clockAt(&j.now)})
	return j
}

func (j *journal) event(at store.Instant, hold time.Duration) store.Event {
	e := store.Event{ID: j.ids(at), At: at, Cost: 1}
	if hold > 0 {
		e.Ends = at.Add(hold)
	}
	return e
}

func (j *journal) write(w store.Write, ttl time.Duration) {
	j.t.Helper()
	w.Key, w.Logs = j.key, []store.LogWrite{{Span: store.SpanHour, TTL: ttl, Keep: kept}}
	if err := j.store.Write(j.t.Context(), &w); err != nil {
		j.t.Fatal(err)
	}
}

func (j *journal) append(events ...store.Event) {
	j.t.Helper()
	j.write(store.Write{Events: events}, time.Hour)
}

func (j *journal) events() []store.Event {
	j.t.Helper()
	state, err := j.store.Read(j.t.Context(), &store.Query{Key: j.key, Logs: []store.LogQuery{{Span: store.SpanHour, Max: 1 << 20}}})
	if err != nil {
		j.t.Fatal(err)
	}
	return state.Logs[0].Events
}

// counted returns the units that are there to stay, and those of holds.
func (j *journal) counted() (settled, held int64) {
	j.t.Helper()
	for _, e := range j.events() {
		if e.Ends == 0 {
			settled += e.Cost
		} else {
			held += e.Cost
		}
	}
	return settled, held
}

// crowd appends events until older ones have been merged.
func (j *journal) crowd() (appended int64) {
	j.t.Helper()
	for range 100 {
		j.now++
		j.append(j.event(j.now, 0))
	}
	if got := len(j.events()); got > 64 {
		j.t.Fatalf("%d events are kept", got)
	}
	return 100
}

func TestEndedHoldsAreForgottenAndLiveOnesStayHolds(t *testing.T) {
	j := newJournal(t)
	ended, live := j.event(j.now, time.Second), j.event(j.now, 30*time.Minute)
	j.append(ended, live)
	j.now = j.now.Add(10 * time.Minute)
	appended := j.crowd()
	if settled, held := j.counted(); settled != appended || held != 1 {
		t.Errorf("%d units to stay and %d held, want %d and 1", settled, held, appended)
	}
	for _, e := range j.events() {
		if e.Ends != 0 && e.Ends != live.Ends {
			t.Errorf("a hold until start%+d ms, want that of the live one", e.Ends-start)
		}
	}
}

// TestHoldsExpireNothingElse gives holds the short time to live that they have in a
// shared store.
func TestHoldsExpireNothingElse(t *testing.T) {
	j := newJournal(t)
	j.append(j.event(j.now, 0))
	for range 100 {
		j.now = j.now.Add(10 * time.Second)
		j.write(store.Write{Events: []store.Event{j.event(j.now, time.Second)}}, 2*time.Second)
	}
	if settled, _ := j.counted(); settled != 1 {
		t.Errorf("%d units to stay, want 1", settled)
	}
}

func TestAClockThatIsAheadEndsNoHold(t *testing.T) {
	j := newJournal(t)
	j.append(j.event(j.now, time.Minute))
	for i := range store.Instant(100) { // dated an hour ahead, by the store's own clock at once
		j.append(j.event(start.Add(time.Hour)+i, 0))
	}
	if settled, held := j.counted(); settled != 100 || held != 1 {
		t.Errorf("%d units to stay and %d held, want 100 and 1", settled, held)
	}
}

func TestTheLaterWordOnAnEventStands(t *testing.T) {
	j := newJournal(t)
	held, removed := j.event(j.now, time.Minute), j.event(j.now, 0)
	settle := store.Write{Events: []store.Event{held}, Settle: true}
	j.append(held, removed)
	j.append(held, removed)
	if settled, held := j.counted(); settled != 1 || held != 1 {
		t.Fatalf("after a repetition: %d units to stay and %d held", settled, held)
	}
	j.write(settle, time.Hour)
	j.append(held)
	j.write(store.Write{Remove: []store.EventID{removed.ID}}, time.Hour)
	j.append(removed)
	if settled, held := j.counted(); settled != 1 || held != 0 {
		t.Errorf("%d units to stay and %d held, want those that were settled only", settled, held)
	}
	j.write(store.Write{Remove: []store.EventID{held.ID}}, time.Hour)
	j.write(settle, time.Hour)
	if got := j.events(); len(got) != 0 {
		t.Errorf("removed events are back: %+v", got)
	}
	j.write(store.Write{Events: []store.Event{j.event(j.now, time.Minute)}, Settle: true}, time.Hour)
	if settled, held := j.counted(); settled != 1 || held != 0 {
		t.Errorf("settled without having been held: %d units to stay and %d held", settled, held)
	}
}

// TestSettlingFindsAnEventAmongManyOfItsInstant settles the first of more events than
// an append looks at.
func TestSettlingFindsAnEventAmongManyOfItsInstant(t *testing.T) {
	j := newJournal(t)
	first := j.event(j.now, time.Minute)
	j.append(first)
	for range 12 {
		j.append(j.event(j.now, 0))
	}
	j.write(store.Write{Events: []store.Event{first}, Settle: true}, time.Hour)
	if settled, held := j.counted(); settled != 13 || held != 0 {
		t.Errorf("%d units to stay and %d held, want 13 and 0", settled, held)
	}
}

func TestRemovedCellsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := embedded.New(nil)
		stop := run(t, s.Run)
		w := store.Write{Key: keysOf(1, true)[0], Cell: &store.CellWrite{Version: store.EventID{1}}} // for ever
		if err := s.Write(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Hour)
		if s.Len() != 1 {
			t.Error("a cell that is kept for ever is gone")
		}
		w.Cell = &store.CellWrite{If: store.EventID{1}}
		if err := s.Write(t.Context(), &w); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if s.Len() != 0 {
			t.Error("the key of a cell that was removed is kept")
		}
		stop()
	})
}

func TestChangesAreBounded(t *testing.T) {
	const most = 1 << 16
	now := start
	s, ids := embedded.New(&embedded.Options{Now: clockAt(&now)}), store.NewEventIDs().Next
	publish := func() error {
		return s.Publish(t.Context(), &store.Change{ID: ids(now), Kind: store.ChangeReset, TTL: time.Minute})
	}
	for range most {
		if err := publish(); err != nil {
			t.Fatal(err)
		}
	}
	if err := publish(); err == nil {
		t.Error("one too many was kept")
	}
	now = now.Add(time.Minute)
	if err := publish(); err != nil {
		t.Errorf("in the place of those that have expired: %v", err)
	}
	if got, err := s.Changes(t.Context(), new(store.ChangeQuery)); err != nil || len(got) != 1 {
		t.Errorf("%d changes, %v", len(got), err)
	}
}

// Callers that are denied often can't keep administrators from writing blocks.
func TestBlocksMakeRoomInTheFeed(t *testing.T) {
	const most = 1 << 16
	now := store.InstantOf(time.Now())
	s, ids := embedded.New(&embedded.Options{Now: clockAt(&now)}), store.NewEventIDs().Next
	publish := func(kind store.ChangeKind, lasts time.Duration) (store.EventID, error) {
		c := store.Change{ID: ids(now), Kind: kind, TTL: lasts}
		return c.ID, s.Publish(t.Context(), &c)
	}
	for i := range most {
		if _, err := publish(store.ChangeBlock, time.Hour+time.Duration(i)*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := publish(store.ChangeBlock, 24*time.Hour); !errors.Is(err, store.ErrOverloaded) {
		t.Errorf("a block too many: %v", err)
	}
	made := make(map[store.EventID]bool)
	for _, kind := range []store.ChangeKind{store.ChangeOverride, store.ChangeReset, store.ChangeRefund} {
		id, err := publish(kind, time.Hour)
		if err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		made[id] = true
	}
	changes, err := s.Changes(t.Context(), new(store.ChangeQuery))
	found, soonest := 0, store.Distant
	for _, c := range changes {
		if made[c.ID] {
			found++
		} else {
			soonest = min(soonest, now.Add(c.TTL))
		}
	}
	if err != nil || len(changes) != most || found != len(made) || soonest != now.Add(time.Hour+3*time.Second) {
		t.Errorf("%d changes, %d of %d, the first block ends after %v, %v", len(changes), found, len(made), soonest.Sub(now), err)
	}
}
