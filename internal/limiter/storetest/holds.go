package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/limiter"
)

func testHolds(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	held := limiter.Event{ID: s.ids(noon), At: noon, Cost: 2, Ends: noon + 30_000}
	want := func(step string, want ...limiter.Event) {
		t.Helper()
		q := limiter.Query{Logs: []limiter.LogQuery{{Span: limiter.SpanHour, Max: 10}}}
		if got := s.read(q).Logs[0].Events; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", step, got, want)
		}
	}
	hold := limiter.Write{Events: []limiter.Event{held}}
	settled := held
	settled.Ends = 0
	settle := limiter.Write{Events: []limiter.Event{settled}, Settle: true}
	remove := limiter.Write{Remove: []limiter.EventID{held.ID}}
	for _, step := range []struct {
		name  string
		write limiter.Write
		want  []limiter.Event
	}{
		{"held", hold, []limiter.Event{held}},
		{"held again", hold, []limiter.Event{held}},
		{"settled", settle, []limiter.Event{settled}},
		{"held by who came late", hold, []limiter.Event{settled}},
		{"removed", remove, nil},
		{"settled by who came late", settle, nil},
		{"held by who came later still", hold, nil},
		{"removed again", remove, nil},
	} {
		s.write(step.write)
		want(step.name, step.want...)
	}
}

// testSettledBeforeHeld has the later word on an event arrive first.
func testSettledBeforeHeld(t *testing.T, store limiter.Store) {
	s := newSubject(t, store)
	id := s.ids(noon)
	s.write(limiter.Write{Events: []limiter.Event{{ID: id, At: noon, Cost: 2}}, Settle: true})
	s.write(limiter.Write{Events: []limiter.Event{{ID: id, At: noon, Cost: 2, Ends: noon + 30_000}}})
	got := s.read(limiter.Query{Logs: []limiter.LogQuery{{Span: limiter.SpanHour, Max: 10}}}).Logs[0].Events
	if want := (limiter.Event{ID: id, At: noon, Cost: 2}); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func testWriteAll(t *testing.T, store limiter.Store) {
	subjects := []*subject{newSubject(t, store), newSubject(t, store), newSubject(t, store)}
	logs := []limiter.LogWrite{{Span: limiter.SpanHour, TTL: time.Hour, Keep: 10}, {Span: limiter.SpanDay, TTL: time.Hour, Keep: 10}}
	var writes []limiter.Write
	for i, s := range subjects {
		held := limiter.Event{ID: s.ids(noon), At: noon, Cost: int64(i + 1), Ends: noon + 30_000}
		s.write(limiter.Write{Events: []limiter.Event{held}, Logs: logs})
		held.Ends = 0
		another := limiter.Event{ID: s.ids(noon + 1), At: noon + 1, Cost: 1}
		level := []limiter.Level{limiter.LevelQuorum, limiter.LevelLocalQuorum, limiter.LevelOne}[i]
		writes = append(writes, limiter.Write{Key: s.key, Level: level, Events: []limiter.Event{held, another}, Logs: logs, Settle: true})
	}
	for range 2 { // it is safe to repeat
		if err := store.WriteAll(t.Context(), writes); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.WriteAll(t.Context(), writes[:1]); err != nil {
		t.Fatal(err)
	}
	for i, s := range subjects {
		for _, log := range logs {
			q := limiter.Query{Logs: []limiter.LogQuery{{Span: log.Span, Max: 10}}}
			if got := s.read(q).Logs[0].Events; !slices.Equal(got, writes[i].Events) {
				t.Errorf("key %d, span %d: %+v, want %+v", i, log.Span, got, writes[i].Events)
			}
		}
	}
}
