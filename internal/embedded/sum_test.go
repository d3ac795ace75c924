package embedded_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// TestSumsOfLogs holds the sum that an Update is told against the events that it is told
// with, whatever was appended, settled, removed, reset or merged before.
func TestSumsOfLogs(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		j := newJournal(t)
		known := 0
		for range 100 {
			j.now = j.now.Add(time.Duration(rng.IntN(180)) * time.Second)
			if rng.IntN(10) == 0 {
				j.write(j.change(rng, seed%2 == 1), time.Hour)
			} else {
				event := j.event(j.now.Add(-time.Duration(rng.IntN(3))*time.Minute), 0)
				event.Cost = 1 + rng.Int64N(9)
				j.append(event)
			}
			log := j.told(rng.IntN(20), j.now.Add(-time.Duration(rng.IntN(90))*time.Minute))
			held := slices.ContainsFunc(log.Events, func(e store.Event) bool { return e.Ends != 0 })
			if log.Sum != 0 && (held || log.Sum != store.SumOf(log.Events)) {
				t.Fatalf("seed %d: a sum of %d of %+v", seed, log.Sum, log.Events)
			}
			if log.Sum != 0 {
				known++
			}
		}
		if seed%2 == 0 && known < 50 {
			t.Errorf("seed %d: a sum was known %d times of 100", seed, known)
		}
	}
}

// A sum that is larger than any number is not told.
func TestSumOfALogTooLarge(t *testing.T) {
	j := newJournal(t)
	for range 3 {
		event := j.event(j.now, 0)
		event.Cost = 1 << 62
		j.append(event)
	}
	if log := j.told(3, 0); log.Sum != 0 || len(log.Events) != 3 {
		t.Errorf("a sum of %d of %d events", log.Sum, len(log.Events))
	}
	if log := j.told(1, 0); log.Sum != 0 && log.Sum != 1<<62 {
		t.Errorf("a sum of %d of one event of 1 << 62", log.Sum)
	}
}

// A sum is known of a log that was read from a disk, too, unless a hold is in it.
func TestSumOfALogOfADisk(t *testing.T) {
	for hold, want := range map[time.Duration]int64{0: 12, time.Hour: 0} {
		j, folder := newJournal(t), t.TempDir()
		for _, more := range []int{3, 3, 0} {
			store, end := openFile(t, folder, embedded.Options{Now: clockAt(&j.now)})
			t.Cleanup(end)
			j.store = store
			for range more {
				event := j.event(j.now, hold)
				event.Cost = 2
				j.append(event)
			}
			end()
		}
		if log := j.told(10, 0); log.Sum != want || len(log.Events) != 6 {
			t.Errorf("a sum of %d of %d events, held for %v; want %d of 6", log.Sum, len(log.Events), hold, want)
		}
	}
}

// A sum is known again when the last hold is settled or removed.
func TestSumOfALogWithoutHoldsAgain(t *testing.T) {
	j := newJournal(t)
	j.append(j.event(j.now, 0))
	for _, end := range []func(store.Event) store.Write{
		func(e store.Event) store.Write { return store.Write{Events: []store.Event{e}, Settle: true} },
		func(e store.Event) store.Write { return store.Write{Remove: []store.EventID{e.ID}} },
	} {
		held := j.event(j.now, time.Hour)
		j.append(held)
		if log := j.told(10, 0); log.Sum != 0 {
			t.Errorf("a sum of %d beside a hold", log.Sum)
		}
		j.write(end(held), time.Hour)
		if log := j.told(10, 0); log.Sum != 2 {
			t.Errorf("a sum of %d without holds, want 2", log.Sum)
		}
	}
}

// change returns something else than one more event, of holds only where they may be.
func (j *journal) change(rng *rand.Rand, holds bool) store.Write {
	events := j.events()
	if len(events) == 0 {
		return store.Write{Events: []store.Event{j.event(j.now, 0)}}
	}
	one := events[rng.IntN(len(events))]
	switch rng.IntN(5) {
	case 0:
		return store.Write{Remove: []store.EventID{one.ID}}
	case 1:
		one.Cost++ // of a hold that less or more came of
		return store.Write{Events: []store.Event{one}, Settle: true}
	case 2:
		return store.Write{Reset: j.now.Add(-time.Duration(rng.IntN(30)) * time.Minute), ResetTTL: time.Hour}
	case 3:
		if holds {
			return store.Write{Events: []store.Event{j.event(j.now, time.Minute)}}
		}
	}
	return store.Write{Events: []store.Event{one}} // again
}

// told returns what an Update is told of the log: n events at most, later than after.
func (j *journal) told(n int, after store.Instant) store.Log {
	j.t.Helper()
	var log store.Log
	query := store.Query{Key: j.key, Logs: []store.LogQuery{{Span: store.SpanHour, After: after, Max: n}}, ExpireAfter: j.now}
	err := j.store.Update(j.t.Context(), &query, func(s *store.State, _ *store.Write) {
		log = store.Log{Events: slices.Clone(s.Logs[0].Events), Sum: s.Logs[0].Sum}
	})
	if err != nil {
		j.t.Fatal(err)
	}
	return log
}
