package embedded_test

import (
	"testing"
	"time"

	"github.com/ratelimitd/ratelimitd/internal/embedded"
	"github.com/ratelimitd/ratelimitd/internal/limiter/store"
)

// What every key costs is multiplied by millions: what few keys need belongs elsewhere.
func TestEntriesAreSmall(t *testing.T) {
	if most := uintptr(128); embedded.EntrySize > most { // two lines of the processor's cache
		t.Errorf("an entry takes %d bytes, more than %d", embedded.EntrySize, most)
	}
}

// A log of a caller that asks as often as the limit lets has memory for hardly more events
// than count.
func TestMemoryOfALog(t *testing.T) {
	for _, keep := range []int{2, 11, 101, 1001} {
		j := newJournal(t)
		pause := time.Hour / time.Duration(keep-1)
		for range 3 * keep {
			j.now = j.now.Add(pause)
			log := store.LogWrite{Span: store.SpanHour, TTL: time.Hour, Keep: keep}
			w := store.Write{Key: j.key, Events: []store.Event{j.event(j.now, 0)}, Logs: []store.LogWrite{log}}
			if err := j.store.Write(t.Context(), &w); err != nil {
				t.Fatal(err)
			}
		}
		if room, most := j.store.RoomOf(j.key, store.SpanHour), keep+max(1, keep/8); room > most {
			t.Errorf("memory for %d events where %d are kept, more than %d", room, keep, most)
		}
		if got := len(j.told(keep, j.now.Add(-time.Hour)).Events); got != keep-1 {
			t.Errorf("%d events of the last hour, %d were appended", got, keep-1)
		}
	}
}
