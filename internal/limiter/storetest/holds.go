package storetest

import (
	"slices"
	"testing"

	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

func testHolds(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	held := store.Event{ID: s.ids(noon), At: noon, Cost: 2, Ends: noon + 30_000}
	want := func(step string, want ...store.Event) {
		t.Helper()
		q := store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, Max: 10}}}
		if got := s.read(q).Logs[0].Events; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", step, got, want)
		}
	}
	hold := store.Write{Events: []store.Event{held}}
	settled := held
	settled.Ends = 0
	settle := store.Write{Events: []store.Event{settled}, Settle: true}
	remove := store.Write{Remove: []store.EventID{held.ID}}
	for _, step := range []struct {
		name  string
		write store.Write
		want  []store.Event
	}{
		{"held", hold, []store.Event{held}},
		{"held again", hold, []store.Event{held}},
		{"settled", settle, []store.Event{settled}},
		{"held late", hold, []store.Event{settled}},
		{"removed", remove, nil},
		{"settled late", settle, nil},
		{"held later still", hold, nil},
		{"removed again", remove, nil},
	} {
		s.write(step.write)
		want(step.name, step.want...)
	}
}

// testSettledBeforeHeld lets the settlement of an event arrive before its hold.
func testSettledBeforeHeld(t *testing.T, in store.Store) {
	s := newSubject(t, in)
	id := s.ids(noon)
	s.write(store.Write{Events: []store.Event{{ID: id, At: noon, Cost: 2}}, Settle: true})
	s.write(store.Write{Events: []store.Event{{ID: id, At: noon, Cost: 2, Ends: noon + 30_000}}})
	got := s.read(store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, Max: 10}}}).Logs[0].Events
	if want := (store.Event{ID: id, At: noon, Cost: 2}); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// testSettledAtAnotherCost settles an event at another cost than its hold's, in both orders of arrival.
func testSettledAtAnotherCost(t *testing.T, in store.Store) {
	for _, cost := range []int64{1, 9} {
		for _, held := range []int{0, 1} {
			s := newSubject(t, in)
			event := store.Event{ID: s.ids(noon), At: noon, Cost: 4, Ends: noon + 30_000}
			settled := store.Event{ID: event.ID, At: noon, Cost: cost}
			words := []store.Write{{Events: []store.Event{event}}, {Events: []store.Event{settled}, Settle: true}}
			s.write(words[held])
			s.write(words[1-held])
			got := s.read(store.Query{Logs: []store.LogQuery{{Span: store.SpanHour, Max: 10}}}).Logs[0].Events
			if len(got) != 1 || got[0] != settled {
				t.Errorf("statement %d first: %+v, want %+v", held, got, settled)
			}
		}
	}
}
